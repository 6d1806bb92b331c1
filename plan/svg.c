/* What does the plan look like on the machine? A picture of 1600 x 1000: sockets, NUMA nodes and cores
 * coloured by rank, and below them GPUs and NICs in their host bridges. For programs alone. */
#include <string.h>

#include <xcloud/plan.h>

#define WIDTH       1600
#define HEIGHT      1000
#define MARGIN      16
#define TOP         84 /* title and key */
#define LABEL       18 /* a box's title line */
#define CELL_MAX    72 /* a core */
#define CHIP_HEIGHT 34 /* a GPU or a NIC */
#define LINK_HEIGHT 16 /* the word between them */
#define LEGEND_ROW  18
#define LEGEND_MAX  16 /* ranks listed */

struct box {
    int x, y, width, height;
};

struct picture {
    const struct xc_plan *plan;
    const struct xc_node *node;
    struct xc_text *out;
    int *owner;        /* by index of the CPU: its first rank, or XC_NONE */
    unsigned *sharers; /* ranks that have it */
};

/* ---- colours --------------------------------------------------------------------------------------- */

/* Okabe and Ito's colours without grey and black, and Tol's wine: they stay apart for colour-blind
 * eyes. From rank 8 on they come again, paler; the number says which it is. */
static const unsigned palette[] = {0xe69f00, 0x56b4e9, 0x009e73, 0xf0e442,
                                   0x0072b2, 0xd55e00, 0xcc79a7, 0x882255};

static unsigned rank_colour(int rank)
{
    unsigned colour = palette[(unsigned)rank % XC_COUNT(palette)], paler = 0;
    if ((unsigned)rank / XC_COUNT(palette) % 2 == 0)
        return colour;
    for (int shift = 0; shift < 24; shift += 8)
        paler |= (((colour >> shift & 255) + 255) / 2) << shift;
    return paler;
}

/* Black or white, whichever can be read on the colour. */
static const char *ink_on(unsigned colour)
{
    unsigned light = (colour >> 16 & 255) * 30 + (colour >> 8 & 255) * 59 + (colour & 255) * 11;
    return light > 11500 ? "#000" : "#fff";
}

/* ---- shapes ------------------------------------------------------------------------------------------ */

static void escaped(struct xc_text *out, const char *string)
{
    for (; *string; string++) {
        unsigned char c = (unsigned char)*string;
        if (c == '<')
            xc_text_add(out, "&lt;");
        else if (c == '>')
            xc_text_add(out, "&gt;");
        else if (c == '&')
            xc_text_add(out, "&amp;");
        else if (c == '"')
            xc_text_add(out, "&quot;");
        else if (c >= 0x20 && c < 0x7f)
            xc_text_add_n(out, string, 1);
        else
            xc_text_add(out, "?"); /* XML knows no control characters, and names are ASCII */
    }
}

static void rect(struct picture *picture, struct box box, const char *style)
{
    xc_text_addf(picture->out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" %s/>\n", box.x,
                 box.y, box.width, box.height, style);
}

static void filled(struct picture *picture, struct box box, unsigned colour)
{
    char style[64];
    snprintf(style, sizeof style, "fill=\"#%06x\" stroke=\"#444\"", colour);
    rect(picture, box, style);
}

xc_printf(7, 8) static void text(struct picture *picture, int x, int y, int size,
                                 const char *anchor, const char *colour, const char *format, ...)
{
    struct xc_text string = XC_TEXT_INIT;
    va_list args;
    va_start(args, format);
    xc_text_addv(&string, format, args);
    va_end(args);
    xc_autofree char *plain = xc_text_take(&string);
    picture->out->failed |= !plain;
    if (!plain)
        return;
    xc_text_addf(picture->out,
                 "<text x=\"%d\" y=\"%d\" font-size=\"%d\" text-anchor=\"%s\" fill=\"%s\">", x, y,
                 size, anchor, colour);
    escaped(picture->out, plain);
    xc_text_add(picture->out, "</text>\n");
}

/* A size at which `letters` letters fit into `width`, at most `most`. */
static int fitting(int width, size_t letters, int most)
{
    int size = letters ? width * 10 / (int)(letters * 6) : most;
    return size < most ? size : most;
}

#define HATCHED     "fill=\"url(#kept)\" stroke=\"#444\""
#define UNUSED      "fill=\"#d0d0d0\" stroke=\"#888\""
#define NOT_ALLOWED "fill=\"#fff\" stroke=\"#bbb\" stroke-dasharray=\"2,2\""

/* ---- cores ---------------------------------------------------------------------------------------- */

static void find_owners(struct picture *picture)
{
    for (size_t i = 0; i < picture->node->ncpus; i++) {
        picture->owner[i] = XC_NONE;
        for (unsigned t = 0; t < picture->plan->ntasks; t++) {
            if (!xc_set_has(&picture->plan->tasks[t].cpus, (size_t)picture->node->cpus[i].os))
                continue;
            if (picture->owner[i] == XC_NONE)
                picture->owner[i] = (int)t;
            picture->sharers[i]++;
        }
    }
}

/* One thread's part of a core, with its CPU number where there is room. */
static void draw_thread(struct picture *picture, size_t index, struct box box)
{
    const struct xc_cpu *cpu = &picture->node->cpus[index];
    const char *ink = "#000";
    if (picture->owner[index] != XC_NONE) {
        filled(picture, box, rank_colour(picture->owner[index]));
        ink = ink_on(rank_colour(picture->owner[index]));
    } else if (xc_set_has(&picture->plan->housekeeping, (size_t)cpu->os)) {
        rect(picture, box, HATCHED);
    } else if (xc_set_has(&picture->plan->training, (size_t)cpu->os)) {
        rect(picture, box, UNUSED);
    } else {
        rect(picture, box, NOT_ALLOWED);
    }
    if (box.width >= 16 && box.height >= 26)
        text(picture, box.x + box.width / 2, box.y + 11, fitting(box.width - 2, 4, 10), "middle",
             ink, "%d", cpu->os);
}

static void draw_core(struct picture *picture, int core, struct box box)
{
    const struct xc_node *node = picture->node;
    int threads = 0, done = 0, rank = XC_NONE;
    unsigned sharers = 0;
    bool priority = false;
    for (size_t i = 0; i < node->ncpus; i++)
        threads += node->cpus[i].core == core;
    for (size_t i = 0; i < node->ncpus; i++) {
        const struct xc_cpu *cpu = &node->cpus[i];
        if (cpu->core != core)
            continue;
        int left = box.width * done / threads, right = box.width * (done + 1) / threads;
        draw_thread(picture, i, (struct box){box.x + left, box.y, right - left, box.height});
        done++;
        rank = rank == XC_NONE ? picture->owner[i] : rank;
        sharers = picture->sharers[i] > sharers ? picture->sharers[i] : sharers;
        priority |= (cpu->flags & XC_CPU_PRIORITY) != 0;
    }
    if (priority)
        rect(picture, (struct box){box.x + 1, box.y + 1, box.width - 2, box.height - 2},
             "fill=\"none\" stroke=\"#000\" stroke-width=\"3\"");
    const char *ink = rank == XC_NONE ? "#444" : ink_on(rank_colour(rank));
    if (rank != XC_NONE)
        text(picture, box.x + box.width / 2, box.y + box.height * 4 / 5, box.height / 2, "middle",
             ink, "%d%s", rank, sharers > 1 ? "+" : "");
}

/* The largest cell of which `count` fit into width x height. */
static int cell_size(int width, int height, size_t count)
{
    for (int cell = CELL_MAX; cell > 4; cell--)
        if ((size_t)(width / cell) * (size_t)(height / cell) >= count)
            return cell;
    return 4;
}

/* Cores of a NUMA node (XC_NONE: those of no known node) in a package, each once. */
static size_t find_cores(const struct xc_node *node, int package, int numa, int *cores)
{
    size_t count = 0;
    int last = XC_NONE;
    for (int core = 0; (size_t)core < node->ncores; core++) {
        for (size_t i = 0; i < node->ncpus; i++) {
            const struct xc_cpu *cpu = &node->cpus[i];
            if (cpu->core != core || cpu->package != package || cpu->numa != numa || last == core)
                continue;
            last = core;
            cores[count++] = core;
        }
    }
    return count;
}

static void draw_numa(struct picture *picture, int numa, const int *cores, size_t count,
                      struct box box)
{
    rect(picture, box, "fill=\"#fafafa\" stroke=\"#888\"");
    int index = xc_node_numa_index(picture->node, numa);
    if (index >= 0)
        text(picture, box.x + 6, box.y + 13, 11, "start", "#333", "NUMA %d, %llu GiB", numa,
             (unsigned long long)(picture->node->numas[index].memory >> 30));
    else
        text(picture, box.x + 6, box.y + 13, 11, "start", "#333", "NUMA node unknown");
    int width = box.width - 8, height = box.height - LABEL - 6;
    int cell = cell_size(width, height, count), columns = width / cell;
    for (size_t i = 0; i < count; i++)
        draw_core(picture, cores[i],
                  (struct box){box.x + 4 + (int)i % columns * cell,
                               box.y + LABEL + (int)i / columns * cell, cell - 2, cell - 2});
}

/* NUMA nodes of a package that have CPUs; XC_NONE counts as one. */
static size_t find_numas(const struct xc_node *node, int package, int *numas)
{
    size_t count = 0;
    for (size_t i = 0; i < node->ncpus; i++) {
        if (node->cpus[i].package != package)
            continue;
        size_t k = 0;
        while (k < count && numas[k] != node->cpus[i].numa)
            k++;
        if (k == count)
            numas[count++] = node->cpus[i].numa;
    }
    return count;
}

/* As many columns of NUMA boxes as make the cores largest. */
static int numa_columns(const struct box *box, size_t count, size_t cores)
{
    int best = 1, largest = 0;
    for (int columns = 1; columns <= (int)count; columns++) {
        int rows = ((int)count + columns - 1) / columns;
        int cell = cell_size(box->width / columns - 16, box->height / rows - LABEL - 14,
                             (cores + count - 1) / count);
        if (cell > largest) {
            largest = cell;
            best = columns;
        }
    }
    return best;
}

static void draw_numas(struct picture *picture, int package, struct box box)
{
    const struct xc_node *node = picture->node;
    xc_autofree int *numas = calloc(node->ncpus + 1, sizeof *numas);
    xc_autofree int *cores = calloc(node->ncores + 1, sizeof *cores);
    picture->out->failed |= !numas || !cores;
    if (!numas || !cores)
        return;
    size_t count = find_numas(node, package, numas), most = 0;
    for (size_t i = 0; i < count; i++)
        most += find_cores(node, package, numas[i], cores);
    int columns = numa_columns(&box, count, most), rows = ((int)count + columns - 1) / columns;
    for (size_t i = 0; i < count; i++) {
        size_t found = find_cores(node, package, numas[i], cores);
        int column = (int)i % columns, row = (int)i / columns;
        draw_numa(picture, numas[i], cores, found,
                  (struct box){box.x + box.width * column / columns + 4,
                               box.y + box.height * row / rows + 2, box.width / columns - 8,
                               box.height / rows - 6});
    }
}

/* ---- devices ----------------------------------------------------------------------------------------- */

/* The package that a device is drawn in, by the NUMA node that counts for it; XC_NONE: none known. */
static int package_of_numa(const struct xc_node *node, int numa)
{
    for (size_t i = 0; numa != XC_NONE && i < node->ncpus; i++)
        if (node->cpus[i].numa == numa)
            return node->cpus[i].package;
    return XC_NONE;
}

struct bridge {
    uint32_t root;
    int package;
    size_t ngpus, nnics;
};

static uint32_t root_of(const struct xc_node *node, int pci)
{
    return pci >= 0 && (size_t)pci < node->npci ? node->pci[pci].root : UINT32_MAX;
}

static struct bridge *bridge_of(struct bridge *bridges, size_t *count, uint32_t root, int package)
{
    for (size_t i = 0; i < *count; i++)
        if (bridges[i].root == root && bridges[i].package == package)
            return &bridges[i];
    bridges[*count] = (struct bridge){.root = root, .package = package};
    return &bridges[(*count)++];
}

static int by_root(const void *a, const void *b)
{
    const struct bridge *left = a, *right = b;
    return (left->root > right->root) - (left->root < right->root);
}

/* Host bridges with GPUs or NICs, in the order of their numbers. */
static size_t find_bridges(const struct xc_node *node, struct bridge *bridges)
{
    size_t count = 0;
    for (size_t i = 0; i < node->ngpus; i++)
        bridge_of(bridges, &count, root_of(node, node->gpus[i].pci),
                  package_of_numa(node, node->gpus[i].numa))
            ->ngpus++;
    for (size_t i = 0; i < node->nnics; i++)
        bridge_of(bridges, &count, root_of(node, node->nics[i].pci),
                  package_of_numa(node, node->nics[i].numa))
            ->nnics++;
    if (count)
        qsort(bridges, count, sizeof *bridges, by_root);
    return count;
}

static int gpu_rank(const struct xc_plan *plan, int gpu, unsigned *ranks)
{
    int first = XC_NONE;
    *ranks = 0;
    for (unsigned t = 0; t < plan->ntasks; t++)
        for (size_t k = 0; k < plan->tasks[t].ngpus; k++)
            if (plan->tasks[t].gpus[k] == gpu) {
                first = first == XC_NONE ? (int)t : first;
                (*ranks)++;
                break;
            }
    return first;
}

static int nic_rank(const struct xc_plan *plan, int nic, unsigned *ranks, enum xc_path *path)
{
    int first = XC_NONE;
    *ranks = 0;
    for (unsigned t = 0; t < plan->ntasks; t++)
        for (size_t k = 0; k < plan->tasks[t].nnics; k++)
            if (plan->tasks[t].nics[k].nic == nic) {
                if (first == XC_NONE) {
                    first = (int)t;
                    *path = plan->tasks[t].nics[k].path;
                }
                (*ranks)++;
            }
    return first;
}

static void draw_chip(struct picture *picture, struct box box, int rank, unsigned ranks,
                      const char *name, bool gpu)
{
    unsigned colour = rank == XC_NONE ? 0xe8e8e8 : rank_colour(rank);
    char style[96], below[32] = "not used";
    snprintf(style, sizeof style, "fill=\"#%06x\" stroke=\"#444\" rx=\"%d\"%s", colour, gpu ? 2 : 8,
             rank == XC_NONE ? " stroke-dasharray=\"3,2\"" : "");
    rect(picture, box, style);
    if (rank != XC_NONE)
        snprintf(below, sizeof below, ranks > 1 ? "rank %d +%u" : "rank %d", rank, ranks - 1);
    const char *ink = rank == XC_NONE ? "#555" : ink_on(colour);
    int middle = box.x + box.width / 2;
    text(picture, middle, box.y + 14, fitting(box.width - 4, strlen(name), 12), "middle", ink, "%s",
         name);
    text(picture, middle, box.y + 28, fitting(box.width - 4, strlen(below), 11), "middle", ink,
         "%s", below);
}

static void draw_gpus(struct picture *picture, const struct bridge *bridge, struct box box,
                      int chip)
{
    const struct xc_node *node = picture->node;
    int x = box.x + 4;
    for (size_t i = 0; i < node->ngpus; i++) {
        if (root_of(node, node->gpus[i].pci) != bridge->root ||
            package_of_numa(node, node->gpus[i].numa) != bridge->package)
            continue;
        unsigned ranks;
        char name[32];
        snprintf(name, sizeof name, "GPU %zu%s", i, node->gpus[i].mig ? " MIG" : "");
        int rank = gpu_rank(picture->plan, (int)i, &ranks);
        draw_chip(picture, (struct box){x, box.y + LABEL, chip - 4, CHIP_HEIGHT}, rank, ranks, name,
                  true);
        x += chip;
    }
}

static void draw_nics(struct picture *picture, const struct bridge *bridge, struct box box,
                      int chip)
{
    const struct xc_node *node = picture->node;
    int x = box.x + 4, y = box.y + LABEL + CHIP_HEIGHT + LINK_HEIGHT;
    for (size_t i = 0; i < node->nnics; i++) {
        const struct xc_nic *nic = &node->nics[i];
        if (root_of(node, nic->pci) != bridge->root ||
            package_of_numa(node, nic->numa) != bridge->package)
            continue;
        unsigned ranks;
        enum xc_path path = XC_PATH_SYS;
        int rank = nic_rank(picture->plan, (int)i, &ranks, &path);
        int middle = x + (chip - 4) / 2;
        if (rank != XC_NONE && bridge->ngpus > 0)
            xc_text_addf(picture->out,
                         "<path d=\"M%d %dv%d\" stroke=\"#444\" stroke-width=\"2\"/>\n", middle,
                         y - LINK_HEIGHT, LINK_HEIGHT);
        if (rank != XC_NONE)
            text(picture, bridge->ngpus > 0 ? middle + 4 : middle, y - 4, 11,
                 bridge->ngpus > 0 ? "start" : "middle", "#000", "%s", xc_path_name(path));
        draw_chip(picture, (struct box){x, y, chip - 4, CHIP_HEIGHT}, rank, ranks,
                  nic->rdma[0] ? nic->rdma : nic->netdev, false);
        x += chip;
    }
}

#define BRIDGE_HEIGHT (LABEL + 2 * CHIP_HEIGHT + LINK_HEIGHT + 8)

static int bridge_width(const struct bridge *bridge, int chip)
{
    size_t columns = bridge->ngpus > bridge->nnics ? bridge->ngpus : bridge->nnics;
    int width = (int)columns * chip + 4;
    return width > 56 ? width : 56;
}

/* Lays the bridges of a package out in rows; draws them when asked. Returns the height. */
static int flow_bridges(struct picture *picture, const struct bridge *bridges, size_t count,
                        int package, struct box box, int chip, bool draw)
{
    int x = box.x, y = box.y;
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        if (bridges[i].package != package)
            continue;
        int width = bridge_width(&bridges[i], chip);
        if (any && x + width > box.x + box.width) {
            x = box.x;
            y += BRIDGE_HEIGHT + 4;
        }
        any = true;
        struct box here = {x, y, width, BRIDGE_HEIGHT};
        x += width + 6;
        if (!draw)
            continue;
        rect(picture, here, "fill=\"#f1f4f8\" stroke=\"#99a\"");
        text(picture, here.x + 4, here.y + 13, 10, "start", "#446", "%04x:%02x",
             bridges[i].root >> 8, bridges[i].root & 255);
        draw_gpus(picture, &bridges[i], here, chip);
        draw_nics(picture, &bridges[i], here, chip);
    }
    return any ? y + BRIDGE_HEIGHT + 4 - box.y : 0;
}

/* The widest chips whose rows are not higher than `height`. */
static int chip_size(const struct bridge *bridges, size_t count, int package, struct box box,
                     int height)
{
    for (int chip = 96; chip > 36; chip -= 4)
        if (flow_bridges(NULL, bridges, count, package, box, chip, false) <= height)
            return chip;
    return 36;
}

/* ---- the page ------------------------------------------------------------------------------------------ */

static void draw_head(struct picture *picture, const char *machine)
{
    const struct xc_plan *plan = picture->plan;
    xc_text_addf(
        picture->out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n"
        "<defs><pattern id=\"kept\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#fff\"/>"
        "<rect width=\"2\" height=\"6\" fill=\"#bbb\"/></pattern></defs>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    rect(picture, (struct box){0, 0, WIDTH, HEIGHT}, "fill=\"#fff\"");
    xc_autofree char *kept = xc_set_format(&plan->housekeeping);
    picture->out->failed |= !kept;
    text(picture, MARGIN, 30, 20, "start", "#000", "%s: %u task%s", machine, plan->ntasks,
         plan->ntasks == 1 ? "" : "s");
    if (kept && *kept)
        text(picture, MARGIN, 52, fitting(WIDTH / 2, strlen(kept) + 24, 14), "start", "#333",
             "housekeeping %s %skept free", kept,
             xc_set_intersects(&plan->housekeeping, &plan->training) ? "NOT " : "");
    static const struct {
        const char *style, *words;
    } key[] = {{HATCHED, "housekeeping"},
               {UNUSED, "not used"},
               {NOT_ALLOWED, "not in the step, or offline"},
               {"fill=\"#fff\" stroke=\"#000\" stroke-width=\"3\"", "priority core"}};
    int x = WIDTH - MARGIN - 620;
    for (size_t i = 0; i < XC_COUNT(key); i++) {
        rect(picture, (struct box){x, 16, 16, 16}, key[i].style);
        text(picture, x + 22, 29, 12, "start", "#333", "%s", key[i].words);
        x += 40 + 7 * (int)strlen(key[i].words);
    }
    text(picture, MARGIN, 74, 12, "start", "#555",
         "Numbers in the cores are local ranks, the small ones are CPUs; %zu CPUs, %zu cores, %zu "
         "NUMA "
         "nodes. PIX one switch, PXB several, PHB the host bridge, NODE another bridge of the "
         "node, SYS "
         "between nodes.",
         picture->node->ncpus, picture->node->ncores, picture->node->nnumas);
}

static int legend_columns(const struct xc_plan *plan)
{
    return plan->ntasks > 8 ? 4 : plan->ntasks > 1 ? 2 : 1;
}

static int legend_height(const struct xc_plan *plan)
{
    int shown = plan->ntasks > LEGEND_MAX ? LEGEND_MAX : (int)plan->ntasks;
    int columns = legend_columns(plan);
    return (shown + columns - 1) / columns * LEGEND_ROW +
           (plan->ntasks > LEGEND_MAX ? LEGEND_ROW : 0) + 8;
}

static void legend_line(struct picture *picture, unsigned rank, struct box box)
{
    const struct xc_plan_task *task = &picture->plan->tasks[rank];
    struct xc_text line = XC_TEXT_INIT;
    xc_text_addf(&line, "rank %u: %u core%s ", rank, task->cores, task->cores == 1 ? "" : "s");
    xc_text_add_set(&line, &task->cpus);
    if (task->mem_mode != XC_MEMORY_NONE) {
        xc_text_addf(&line, "; memory ");
        xc_text_add_set(&line, &task->mems);
    }
    xc_autofree char *string = xc_text_take(&line);
    picture->out->failed |= !string;
    filled(picture, (struct box){box.x, box.y, 14, 14}, rank_colour((int)rank));
    if (!string)
        return;
    size_t fits = (size_t)(box.width - 24) / 6;
    if (strlen(string) > fits)
        memcpy(string + fits - 3, "...", 4);
    text(picture, box.x + 20, box.y + 12, 11, "start", "#000", "%s", string);
}

static void draw_legend(struct picture *picture, int y)
{
    unsigned ntasks = picture->plan->ntasks, shown = ntasks > LEGEND_MAX ? LEGEND_MAX : ntasks;
    unsigned columns = (unsigned)legend_columns(picture->plan),
             rows = (shown + columns - 1) / columns;
    int width = (WIDTH - 2 * MARGIN) / (int)columns;
    for (unsigned rank = 0; rank < shown; rank++)
        legend_line(picture, rank,
                    (struct box){MARGIN + (int)(rank / rows) * width,
                                 y + (int)(rank % rows) * LEGEND_ROW, width, LEGEND_ROW});
    if (ntasks > shown)
        text(picture, MARGIN, y + (int)rows * LEGEND_ROW + 12, 11, "start", "#000",
             "and %u more ranks", ntasks - shown);
}

static void draw_package(struct picture *picture, const struct bridge *bridges, size_t count,
                         int package, struct box box)
{
    rect(picture, box, "fill=\"#fff\" stroke=\"#333\" stroke-width=\"2\" rx=\"6\"");
    text(picture, box.x + 8, box.y + 15, 13, "start", "#000", "socket %d", package);
    struct box inner = {box.x + 8, box.y + LABEL + 2, box.width - 16, box.height - LABEL - 6};
    int chip = chip_size(bridges, count, package, inner, inner.height / 2);
    int devices = flow_bridges(picture, bridges, count, package, inner, chip, false);
    struct box cores = {inner.x, inner.y, inner.width, inner.height - devices};
    draw_numas(picture, package, cores);
    inner.y += inner.height - devices;
    flow_bridges(picture, bridges, count, package, inner, chip, true);
}

/* Memory without CPUs, which no plan uses. */
static int memory_only(struct picture *picture, int y, bool draw)
{
    struct xc_text line = XC_TEXT_INIT;
    for (size_t i = 0; i < picture->node->nnumas; i++) {
        const struct xc_numa *numa = &picture->node->numas[i];
        if (numa->ncpus == 0)
            xc_text_addf(&line, "%s%d (%llu GiB)", line.length ? ", " : "", numa->os,
                         (unsigned long long)(numa->memory >> 30));
    }
    xc_autofree char *string = xc_text_take(&line);
    picture->out->failed |= !string;
    if (!string || !*string)
        return 0;
    if (draw)
        text(picture, MARGIN, y + 13, 12, "start", "#555",
             "NUMA nodes without CPUs, never used for placement: %s", string);
    return 20;
}

static void draw_body(struct picture *picture, const struct bridge *bridges, size_t count)
{
    const struct xc_node *node = picture->node;
    int bottom = HEIGHT - MARGIN - legend_height(picture->plan);
    struct box wide = {MARGIN, 0, WIDTH - 2 * MARGIN, 0};
    int chip = chip_size(bridges, count, XC_NONE, wide, BRIDGE_HEIGHT + 4);
    int unknown = flow_bridges(picture, bridges, count, XC_NONE, wide, chip, false);
    int extra = memory_only(picture, 0, false);
    int height = bottom - TOP - extra - (unknown ? unknown + LABEL : 0);
    int packages = node->npackages ? (int)node->npackages : 1, columns = 1;
    while (columns < packages && columns * columns < packages * 2)
        columns++;
    int rows = (packages + columns - 1) / columns;
    for (int i = 0; i < packages; i++)
        draw_package(picture, bridges, count, i,
                     (struct box){MARGIN + wide.width * (i % columns) / columns,
                                  TOP + height * (i / columns) / rows, wide.width / columns - 8,
                                  height / rows - 8});
    int y = TOP + height;
    memory_only(picture, y, true);
    if (unknown) {
        text(picture, MARGIN, y + extra + 13, 12, "start", "#333",
             "host bridges whose NUMA node is unknown");
        wide.y = y + extra + LABEL;
        flow_bridges(picture, bridges, count, XC_NONE, wide, chip, true);
    }
    draw_legend(picture, bottom + 8);
}

void xc_plan_svg(const struct xc_plan *plan, const struct xc_node *node, const char *machine,
                 struct xc_text *out)
{
    struct picture picture = {.plan = plan, .node = node, .out = out};
    xc_autofree int *owner = calloc(node->ncpus + 1, sizeof *owner);
    xc_autofree unsigned *sharers = calloc(node->ncpus + 1, sizeof *sharers);
    xc_autofree struct bridge *bridges = calloc(node->ngpus + node->nnics + 1, sizeof *bridges);
    if (!owner || !sharers || !bridges) {
        out->failed = true;
        return;
    }
    picture.owner = owner;
    picture.sharers = sharers;
    find_owners(&picture);
    draw_head(&picture, machine);
    draw_body(&picture, bridges, find_bridges(node, bridges));
    xc_text_add(out, "</svg>\n");
}
