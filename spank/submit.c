/* The submit host: a wrong word is refused here, before anything is allocated. */
#include <string.h>

#include "plugin.h"

/* The policy's hash travels with the job, so that a node with another policy is named. A host without
 * a policy lets an outer one pass. */
static void export_hash(void)
{
    struct xc_places places = {
        .prefix = "", .policy = plugin.args.policy, .slurm_conf = getenv("SLURM_CONF")};
    char hash[17];
    if (xc_policy_live_hash(&places, hash, NULL) == 0)
        setenv("XCLOUD_POLICY_HASH", hash, 1);
}

int submit_init(void)
{
    export_hash();
    /* a refusal on one node ends the step on all; too late in init_post_opt, whose value srun has
     * read by then (22.05 to 26.05) */
    if (plugin.args.kill_on_refuse && spank_context() == S_CTX_LOCAL)
        setenv("SLURM_KILL_BAD_EXIT", "1", 0);
    return 0;
}

int submit_option(const char *value)
{
    struct xc_words words;
    struct xc_error error = {0};
    char text[sizeof error];
    if (xc_words_parse(value, &words, &error) < 0) {
        slurm_error("%s", xc_error_text(&error, text, sizeof text));
        exit(1); /* a returned -1 would end srun too, with 255 and two more lines */
    }
    if (words.help) { /* as --help: print and end, before anything is asked of Slurm */
        fputs(xc_words_help(), stdout);
        fflush(stdout);
        exit(0);
    }
    return 0;
}
