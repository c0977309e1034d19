#include <math.h>
#include <string.h>

#include "run.h"

float vd_float_of_half(uint16_t half) {
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float size = exponent == 31 ? INFINITY : exponent ? ldexpf((float)(1024 + fraction), exponent - 25)
                                                      : ldexpf((float)fraction, -24);
    return half >> 15 ? -size : size;
}

#define NOT_A_NUMBER 0x7f800000u /* above it */
#define LARGEST 0x477ff000u      /* 65520, and larger ones, are infinite */
#define NORMAL_LEAST 0x38800000u /* 2^-14 */

uint16_t vd_half_of_float(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > NOT_A_NUMBER) return (uint16_t)(sign | 0x7e00);
    if (size >= LARGEST) return (uint16_t)(sign | 0x7c00);
    if (size < NORMAL_LEAST) return (uint16_t)(sign | (uint32_t)lrintf(fabsf(number) * 0x1p24f));
    size += 0xfff + (size >> 13 & 1);
    return (uint16_t)(sign | (size - 0x38000000u) >> 13);
}
