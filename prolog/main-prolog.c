/* xcloud-prolog. A program of its own, not a second name of one: sites link it into prolog.d as they like. */
#include <xcloud/prolog.h>

int main(int argc, char **argv)
{
    return xc_program_main(XC_PROLOG, argc, argv);
}
