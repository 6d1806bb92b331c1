/* Which GPUs, memory nodes and NICs go with each task? */
#include <limits.h>
#include <string.h>

#include "work.h"

/* ---- GPUs ----------------------------------------------------------------------------------------- */

/* Part `index` of `count` things split into `parts` contiguous pieces, the first ones larger. */
static size_t part_start(size_t count, size_t parts, size_t index)
{
    size_t each = count / parts, larger = count % parts;
    return index * each + (index < larger ? index : larger);
}

/* The GPU of rank `index` when several ranks share one: contiguous ranks together. */
static size_t shared_gpu(size_t ngpus, size_t ntasks, size_t index)
{
    size_t gpu = 0;
    while (gpu + 1 < ngpus && part_start(ntasks, ngpus, gpu + 1) <= index)
        gpu++;
    return gpu;
}

/* Rank i goes with the i-th visible GPU: nothing is permuted. */
static struct xc_gpu_list list_of(const struct xc_request *request, size_t task)
{
    if (request->tasks)
        return request->tasks[task];
    const struct xc_gpu_list *all = &request->visible;
    size_t n = request->ntasks;
    if (all->count == 0)
        return (struct xc_gpu_list){0};
    if (n > all->count)
        return (struct xc_gpu_list){.gpus = all->gpus + shared_gpu(all->count, n, task),
                                    .count = 1};
    size_t first = part_start(all->count, n, task);
    return (struct xc_gpu_list){.gpus = all->gpus + first,
                                .count = part_start(all->count, n, task + 1) - first};
}

static int check_list(const struct work *work, const struct xc_gpu_list *list,
                      struct xc_error *error)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->gpus[i] < 0 || (size_t)list->gpus[i] >= work->node->ngpus)
            return xc_error_set(error, XC_EINPUT, NULL, "there is no GPU %d: this machine has %zu",
                                list->gpus[i], work->node->ngpus);
    return 0;
}

int share_gpus(struct work *work, struct xc_error *error)
{
    const struct xc_request *request = work->request;
    if (!request->tasks && check_list(work, &request->visible, error) < 0)
        return -1;
    work->lists = calloc(request->ntasks, sizeof *work->lists);
    if (!work->lists)
        return xc_error_nomem(error);
    for (size_t i = 0; i < request->ntasks; i++) {
        struct xc_gpu_list list = list_of(request, i);
        if (check_list(work, &list, error) < 0)
            return -1;
        work->lists[i] = list;
        struct xc_plan_task *task = &work->plan->tasks[i];
        if (list.count == 0)
            continue;
        task->gpus = malloc(list.count * sizeof *task->gpus);
        if (!task->gpus)
            return xc_error_nomem(error);
        memcpy(task->gpus, list.gpus, list.count * sizeof *task->gpus);
        task->ngpus = list.count;
    }
    return 0;
}

/* ---- memory --------------------------------------------------------------------------------------- */

/* The nodes of the task's cores. Nodes without CPUs (GPU or CXL memory) cannot get in: no core is on
 * one. */
void share_memory(const struct work *work, struct xc_plan_task *task)
{
    task->mem_mode = work->memory;
    if (work->memory == XC_MEMORY_NONE)
        return;
    int last = XC_NONE;
    for (ssize_t os = xc_set_next(&task->cpus, 0); os >= 0;
         os = xc_set_next(&task->cpus, (size_t)os + 1)) {
        const struct xc_cpu *cpu = find_cpu(work->node, os);
        if (!cpu || cpu->numa == last)
            continue;
        last = cpu->numa;
        if (last != XC_NONE && xc_node_numa_index(work->node, last) >= 0)
            xc_set_add(&task->mems, (size_t)last);
    }
    if (work->request->mems)
        xc_set_and(&task->mems, work->request->mems);
    if (xc_set_empty(&task->mems))
        task->mem_mode = XC_MEMORY_NONE;
}

/* ---- NICs: which are the rails -------------------------------------------------------------------- */

static bool pci_matches(const char *pattern, const struct xc_pci *pci)
{
    char id[16];
    snprintf(id, sizeof id, "%04x:%04x", pci->vendor, pci->device);
    return xc_glob(pattern, id);
}

static bool in_names(char *const *patterns, const char *name)
{
    for (; *name && *patterns; patterns++)
        if (xc_glob(*patterns, name))
            return true;
    return false;
}

static const struct xc_pci *pci_of(const struct xc_node *node, int index)
{
    return index >= 0 && (size_t)index < node->npci ? &node->pci[index] : NULL;
}

static bool excluded(const struct xc_node *node, const struct xc_nic *nic, char *const *patterns)
{
    const struct xc_pci *pci = pci_of(node, nic->pci);
    char bdf[XC_BDF_TEXT] = "";
    if (pci)
        xc_bdf_text(&pci->bdf, bdf);
    return in_names(patterns, nic->rdma) || in_names(patterns, nic->netdev) ||
           in_names(patterns, bdf);
}

static bool given(char *const *selector)
{
    return selector && *selector;
}

static bool has_selector(const struct xc_rules *rules)
{
    return given(rules->nics.pci) || given(rules->nics.names) || given(rules->nics.not_) ||
           rules->nics.link != XC_LINK_ANY;
}

/* Whether every selector that is given matches. Only RDMA ports are rails. */
bool xc_plan_is_rail(const struct xc_node *node, const struct xc_rules *rules,
                     const struct xc_nic *nic)
{
    if (!nic->rdma[0])
        return false;
    if (given(rules->nics.pci)) {
        const struct xc_pci *pci = pci_of(node, nic->pci);
        bool found = false;
        for (char **p = rules->nics.pci; pci && *p && !found; p++)
            found = pci_matches(*p, pci);
        if (!found)
            return false;
    }
    if (given(rules->nics.names) && !in_names(rules->nics.names, nic->rdma))
        return false;
    if (given(rules->nics.not_) && excluded(node, nic, rules->nics.not_))
        return false;
    if (rules->nics.link == XC_LINK_INFINIBAND && nic->link != XC_NIC_INFINIBAND)
        return false;
    return rules->nics.link != XC_LINK_ETHERNET || nic->link == XC_NIC_ETHERNET;
}

static const char *state_name(uint32_t state)
{
    static const char *const names[] = {"in an unknown state", "DOWN", "INIT", "ARMED", "ACTIVE"};
    return names[state < XC_COUNT(names) ? state : 0];
}

static int find_rails(struct work *work)
{
    const struct xc_node *node = work->node;
    bool asked = has_selector(work->rules);
    size_t matched = 0;
    work->rails = calloc(node->nnics + 1, sizeof *work->rails);
    if (!work->rails)
        return -1;
    for (size_t i = 0; i < node->nnics; i++) {
        const struct xc_nic *nic = &node->nics[i];
        if (!xc_plan_is_rail(node, work->rules, nic))
            continue;
        matched++;
        if (nic->state == XC_PORT_ACTIVE)
            work->rails[work->nrails++] = (int)i;
        else
            add_note(work, asked ? XC_NOTE_WARN : XC_NOTE_INFO, XC_NONE, "%s is %s: left out%s",
                     nic->rdma, state_name(nic->state),
                     asked ? "" : "; `nics: compute:` in the policy says which NICs are the rails");
    }
    if (asked && matched == 0)
        add_note(work, XC_NOTE_WARN, XC_NONE,
                 "`nics: compute:` matches none of this machine's %zu NICs", node->nnics);
    return 0;
}

/* ---- NICs: the nearest, each to one rank while there are enough ------------------------------------ */

struct match {
    const struct work *work;
    size_t nplaces;      /* a place takes one NIC; a slot has one or more */
    size_t *slot;        /* by place */
    size_t *taken;       /* by place: rail, or FREE */
    unsigned *load;      /* by rail */
    unsigned char *near; /* nslots x nrails: the rail is among the slot's nearest */
    unsigned char *seen; /* by rail: this search has been there */
    size_t *home;        /* by slot: the rail that it would have on a full machine */
    size_t *turn;        /* by slot: how many of its kind choose before it */
};

#define FREE SIZE_MAX

/* A GPU whose own memory is a NUMA node (Grace) sits, for this question, on its CPU's node. */
static enum xc_path gpu_path(const struct xc_node *node, int gpu, int nic)
{
    enum xc_path path = xc_node_path(node, node->gpus[gpu].pci, node->nics[nic].pci);
    int numa = node->gpus[gpu].numa;
    return path == XC_PATH_SYS && numa != XC_NONE && numa == node->nics[nic].numa ? XC_PATH_NODE
                                                                                  : path;
}

/* A rank without a GPU: the SLIT distance of the NIC's node from the nearest of its cores. */
static unsigned cpu_distance(const struct work *work, const struct xc_plan_task *task, int nic)
{
    const struct xc_node *node = work->node;
    int to = node->nics[nic].numa, last = XC_NONE;
    unsigned best = 255;
    for (ssize_t os = xc_set_next(&task->cpus, 0); to != XC_NONE && os >= 0;
         os = xc_set_next(&task->cpus, (size_t)os + 1)) {
        const struct xc_cpu *cpu = find_cpu(node, os);
        if (!cpu || cpu->numa == last)
            continue;
        last = cpu->numa;
        unsigned distance = last == XC_NONE ? 255 : xc_node_distance(node, last, to);
        best = distance < best ? distance : best;
    }
    return best;
}

static enum xc_path slot_path(const struct work *work, size_t task, const struct slot *slot,
                              size_t rail)
{
    int nic = work->rails[rail];
    if (slot->gpu != XC_NONE)
        return gpu_path(work->node, slot->gpu, nic);
    return cpu_distance(work, &work->plan->tasks[task], nic) <= 10 ? XC_PATH_NODE : XC_PATH_SYS;
}

/* What is compared: paths, or distances. */
static unsigned slot_distance(const struct work *work, size_t task, const struct slot *slot,
                              size_t rail)
{
    int nic = work->rails[rail];
    return slot->gpu == XC_NONE ? cpu_distance(work, &work->plan->tasks[task], nic)
                                : (unsigned)gpu_path(work->node, slot->gpu, nic);
}

/* How many of the machine's GPUs have this rail among their nearest; that many want a share of it,
 * whether this step has them or not, so that the answer is the same in every job. */
static void count_rivals(const struct work *work, unsigned *rivals, enum xc_path *row)
{
    const struct xc_node *node = work->node;
    for (size_t gpu = 0; gpu < node->ngpus; gpu++) {
        enum xc_path best = XC_PATH_SYS;
        for (size_t r = 0; r < work->nrails; r++) {
            row[r] = gpu_path(node, (int)gpu, work->rails[r]);
            best = row[r] < best ? row[r] : best;
        }
        for (size_t r = 0; r < work->nrails; r++)
            rivals[r] += row[r] == best;
    }
}

/* The slot's nearest rails; returns how many NICs it should have. */
static size_t fill_near(struct match *match, size_t index, size_t task, const unsigned *rivals,
                        size_t nslots)
{
    const struct work *work = match->work;
    const struct slot *slot = &work->slots[index];
    unsigned char *near = &match->near[index * work->nrails];
    unsigned best = UCHAR_MAX;
    for (size_t r = 0; r < work->nrails; r++) {
        unsigned distance = slot_distance(work, task, slot, r);
        near[r] = (unsigned char)(distance < UCHAR_MAX ? distance : UCHAR_MAX);
        best = near[r] < best ? near[r] : best;
    }
    size_t count = 0, wanted_by = slot->gpu == XC_NONE ? nslots : 1;
    for (size_t r = 0; r < work->nrails; r++) {
        near[r] = near[r] == best;
        count += near[r];
        if (near[r] && slot->gpu != XC_NONE && rivals[r] > wanted_by)
            wanted_by = rivals[r];
    }
    size_t sharers = 0; /* ranks on the same GPU */
    for (size_t i = 0; i < nslots; i++)
        sharers += slot->gpu != XC_NONE && work->slots[i].gpu == slot->gpu;
    size_t want = count / wanted_by / (sharers ? sharers : 1);
    return want ? want : 1;
}

/* On a full machine GPU i of n would get rail i * rails / n: with equal ways a job on half of the
 * GPUs takes that half of the rails. */
static size_t home_rail(const struct work *work, size_t index, size_t nslots)
{
    const struct slot *slot = &work->slots[index];
    if (slot->gpu == XC_NONE)
        return index * work->nrails / nslots;
    return (size_t)slot->gpu * work->nrails / work->node->ngpus;
}

/* A slot's places are neighbours. */
static bool slot_has(const struct match *match, size_t place, size_t rail)
{
    size_t slot = match->slot[place], p = place;
    while (p > 0 && match->slot[p - 1] == slot)
        p--;
    for (; p < match->nplaces && match->slot[p] == slot; p++)
        if (match->taken[p] == rail)
            return true;
    return false;
}

/* The nearest rail to the slot's home that the search has not seen and that fewer than `limit` places
 * have; FREE: none. */
static size_t next_choice(const struct match *match, size_t place, unsigned limit)
{
    size_t slot = match->slot[place], nrails = match->work->nrails, best = FREE, best_apart = 0;
    for (size_t r = 0; r < nrails; r++) {
        if (!match->near[slot * nrails + r] || match->seen[r] || match->load[r] >= limit ||
            slot_has(match, place, r))
            continue;
        size_t home = match->home[slot], apart = r >= home ? 2 * (r - home) : 2 * (home - r) + 1;
        if (best == FREE || apart < best_apart) {
            best = r;
            best_apart = apart;
        }
    }
    return best;
}

/* An augmenting path: a rail with room under `limit`, or one whose holder finds another. */
static bool find_rail(struct match *match, size_t place, unsigned limit)
{
    size_t rail = next_choice(match, place, limit);
    if (rail != FREE) {
        match->taken[place] = rail;
        match->load[rail]++;
        return true;
    }
    while ((rail = next_choice(match, place, UINT_MAX)) != FREE) {
        match->seen[rail] = 1;
        for (size_t p = 0; p < match->nplaces; p++) {
            if (match->taken[p] != rail || match->slot[p] == match->slot[place])
                continue;
            match->load[rail]--;
            bool moved = find_rail(match, p, limit);
            match->load[rail]++; /* the holder's, or this place's own */
            if (!moved)
                continue;
            match->taken[place] = rail;
            return true;
        }
    }
    return false;
}

/* The least load of the rails that a search from this place comes to: a search that takes none. Trying
 * one limit after the other costs the cube of the tasks, and every task makes the plan. */
static unsigned least_load(struct match *match, size_t place)
{
    unsigned least = UINT_MAX;
    memset(match->seen, 0, match->work->nrails);
    find_rail(match, place, 0);
    for (size_t r = 0; r < match->work->nrails; r++)
        if (match->seen[r] && match->load[r] < least)
            least = match->load[r];
    return least;
}

static void match_all(struct match *match)
{
    for (size_t place = 0; place < match->nplaces; place++) {
        unsigned least = least_load(match, place);
        memset(match->seen, 0, match->work->nrails);
        if (least != UINT_MAX)
            find_rail(match, place, least + 1);
    }
}

static int make_slots(struct work *work)
{
    size_t ntasks = work->request->ntasks, count = 0;
    for (size_t i = 0; i < ntasks; i++)
        count += work->lists[i].count ? work->lists[i].count : 1;
    work->slots = calloc(count, sizeof *work->slots);
    work->first_slot = calloc(ntasks + 1, sizeof *work->first_slot);
    if (!work->slots || !work->first_slot)
        return -1;
    size_t at = 0;
    for (size_t i = 0; i < ntasks; i++) {
        const struct xc_gpu_list *list = &work->lists[i];
        work->first_slot[i] = at;
        if (list->count == 0)
            work->slots[at++].gpu = XC_NONE;
        for (size_t k = 0; k < list->count; k++)
            work->slots[at++].gpu = list->gpus[k];
    }
    work->first_slot[ntasks] = at;
    return 0;
}

/* How many slots before this one have the same GPU, or without GPUs the same home. */
static size_t turn(const struct match *match, size_t slot)
{
    const struct slot *slots = match->work->slots;
    size_t count = 0;
    for (size_t s = 0; s < slot; s++)
        count += slots[s].gpu == slots[slot].gpu &&
                 (slots[s].gpu != XC_NONE || match->home[s] == match->home[slot]);
    return count;
}

static void add_places(struct match *match, size_t slot, size_t count)
{
    for (; count > 0; count--) {
        match->slot[match->nplaces] = slot;
        match->taken[match->nplaces++] = FREE;
    }
}

static int make_places(struct match *match, const unsigned *rivals)
{
    struct work *work = (struct work *)match->work;
    size_t ntasks = work->request->ntasks, nslots = work->first_slot[ntasks];
    size_t largest = nslots * (work->nrails + 1);
    match->slot = calloc(largest, sizeof *match->slot);
    match->taken = calloc(largest, sizeof *match->taken);
    match->load = calloc(work->nrails, sizeof *match->load);
    match->near = calloc(nslots, work->nrails);
    match->seen = calloc(work->nrails, 1);
    match->home = calloc(nslots, sizeof *match->home);
    match->turn = calloc(nslots, sizeof *match->turn);
    if (!match->slot || !match->taken || !match->load || !match->near || !match->seen ||
        !match->home || !match->turn)
        return -1;
    for (size_t s = 0; s < nslots; s++)
        match->home[s] = home_rail(work, s, nslots);
    for (size_t s = 0; s < nslots; s++)
        match->turn[s] = turn(match, s);
    /* the first of those that share a GPU choose first, then the second ones: so a GPU's rail goes
     * with it when there is one for each */
    size_t placed = 0;
    for (size_t pass = 0; placed < nslots; pass++)
        for (size_t t = 0; t < ntasks; t++)
            for (size_t s = work->first_slot[t]; s < work->first_slot[t + 1]; s++) {
                if (match->turn[s] != pass)
                    continue;
                add_places(match, s, fill_near(match, s, t, rivals, nslots));
                placed++;
            }
    return 0;
}

static void match_free(struct match *match)
{
    free(match->slot);
    free(match->taken);
    free(match->load);
    free(match->near);
    free(match->seen);
    free(match->home);
    free(match->turn);
}

/* Adds a NIC to a list in rail order; the nearest path counts when it is there already. */
static int insert_nic(struct xc_plan_nic **nics, size_t *count, struct xc_plan_nic nic)
{
    size_t at = 0;
    while (at < *count && (*nics)[at].nic < nic.nic)
        at++;
    if (at < *count && (*nics)[at].nic == nic.nic) {
        if (nic.path < (*nics)[at].path)
            (*nics)[at].path = nic.path;
        return 0;
    }
    struct xc_plan_nic *larger = realloc(*nics, (*count + 1) * sizeof *larger);
    if (!larger)
        return -1;
    memmove(larger + at + 1, larger + at, (*count - at) * sizeof *larger);
    larger[at] = nic;
    *nics = larger;
    (*count)++;
    return 0;
}

static size_t task_of(const struct work *work, size_t slot)
{
    size_t task = 0;
    while (work->first_slot[task + 1] <= slot)
        task++;
    return task;
}

static int place_nics(struct work *work, const struct match *match)
{
    for (size_t p = 0; p < match->nplaces; p++) {
        if (match->taken[p] == FREE)
            continue;
        struct slot *slot = &work->slots[match->slot[p]];
        size_t index = task_of(work, match->slot[p]);
        struct xc_plan_task *task = &work->plan->tasks[index];
        struct xc_plan_nic nic = {.nic = work->rails[match->taken[p]],
                                  .path = slot_path(work, index, slot, match->taken[p])};
        if (insert_nic(&slot->nics, &slot->nnics, nic) < 0 ||
            insert_nic(&task->nics, &task->nnics, nic) < 0)
            return -1;
    }
    return 0;
}

int share_nics(struct work *work, struct xc_error *error)
{
    if (find_rails(work) < 0 || make_slots(work) < 0)
        return xc_error_nomem(error);
    if (work->nrails == 0)
        return 0;
    struct match match = {.work = work};
    xc_autofree unsigned *rivals = calloc(work->nrails, sizeof *rivals);
    xc_autofree enum xc_path *row = calloc(work->nrails, sizeof *row);
    int rc = rivals && row ? 0 : -1;
    if (rc == 0) {
        count_rivals(work, rivals, row);
        rc = make_places(&match, rivals);
    }
    if (rc == 0) {
        match_all(&match);
        rc = place_nics(work, &match);
    }
    match_free(&match);
    return rc == 0 ? 0 : xc_error_nomem(error);
}
