#include "run.h"

#include <math.h>
#include <stdlib.h>

static const double PI = 3.14159265358979323846;

typedef struct {
    double re, im;
} wave;

/* x_t = the sum over k of in_(k stride) e^(2 pi i k t / n), for a power of 2 n: Cooley and Tukey 1965. */
static void add_waves(const wave *in, wave *x, size_t n, size_t stride) {
    if (n == 1) {
        *x = *in;
        return;
    }
    size_t half = n / 2;
    add_waves(in, x, half, 2 * stride);
    add_waves(in + stride, x + half, half, 2 * stride);
    for (size_t k = 0; k < half; k++) {
        double c = cos(2.0 * PI * (double)k / (double)n), s = sin(2.0 * PI * (double)k / (double)n);
        wave even = x[k], odd = {x[half + k].re * c - x[half + k].im * s, x[half + k].re * s + x[half + k].im * c};
        x[k] = (wave){even.re + odd.re, even.im + odd.im};
        x[half + k] = (wave){even.re - odd.re, even.im - odd.im};
    }
}

/* Draw normal waves whose power falls with the frequency: Timmer and Koenig 1995. The real and the imaginary part of
 * their sum are two independent sequences, of numbers with variance 1. */
static void draw_waves(double exponent, size_t n, uint64_t *random, wave *drawn) {
    double variance = 0.0;
    for (size_t k = 0; k < n; k++) {
        size_t frequency = k < n - k ? k : n - k;
        double deviation = pow(frequency ? (double)frequency : 1.0, -exponent / 2.0);
        drawn[k].re = deviation * vd_random_normal(random);
        drawn[k].im = deviation * vd_random_normal(random);
        variance += deviation * deviation;
    }
    for (size_t k = 0; k < n; k++) {
        drawn[k].re /= sqrt(variance);
        drawn[k].im /= sqrt(variance);
    }
}

/* A new sequence for each dimension. The waves repeat after a power of 2, of which `noise_steps` are taken. */
static bool draw_sequences(const policy *p, action_noise *noise, uint64_t *random) {
    size_t n = 1;
    while (n < p->noise_steps) n *= 2;
    wave *drawn = malloc(n * sizeof *drawn), *x = malloc(n * sizeof *x);
    if (!noise->numbers) noise->numbers = malloc(p->noise_steps * p->dimensions * sizeof *noise->numbers);
    bool made = drawn && x && noise->numbers;
    for (size_t d = 0; made && d < p->dimensions; d += 2) {
        draw_waves(p->noise_exponent, n, random, drawn);
        add_waves(drawn, x, n, 1);
        for (size_t t = 0; t < p->noise_steps; t++) {
            float *numbers = noise->numbers + t * p->dimensions + d;
            numbers[0] = (float)x[t].re;
            if (d + 1 < p->dimensions) numbers[1] = (float)x[t].im;
        }
    }
    free(drawn);
    free(x);
    noise->left = made ? p->noise_steps : 0;
    return made;
}

const float *vd_draw_noise(const policy *p, action_noise *noise, uint64_t *random) {
    if (!noise->left && !draw_sequences(p, noise, random)) return NULL;
    return noise->numbers + (p->noise_steps - noise->left--) * p->dimensions;
}

void vd_free_noise(action_noise *noise) {
    free(noise->numbers);
    *noise = (action_noise){0};
}
