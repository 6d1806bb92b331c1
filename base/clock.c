/* What time is it, for deadlines and for what is kept between runs? */
#include <time.h>

#include <xcloud/base.h>

static int64_t clock_us(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t xc_now_us(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

int64_t xc_now_ms(void)
{
    return xc_now_us() / 1000;
}

int64_t xc_boottime_us(void)
{
    return clock_us(CLOCK_BOOTTIME);
}
