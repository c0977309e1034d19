#include "run.h"

#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

/* Random numbers */

uint64_t vd_random_bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double vd_random_unit(uint64_t *state) { return (double)(vd_random_bits(state) >> 11) * 0x1p-53; }

double vd_random_normal(uint64_t *state) {
    double u = 1.0 - vd_random_unit(state); /* in (0, 1]: Box and Muller 1958 */
    return sqrt(-2.0 * log(u)) * cos(2.0 * PI * vd_random_unit(state));
}

double vd_exploration_rank(uint64_t index) {
    double position = 0.0, digit = 0.5;
    for (uint64_t number = index + 1; number; number >>= 1, digit /= 2) position += digit * (double)(number & 1);
    return position;
}

/* Features of an observation */

double vd_number_at(char type, size_t width, const void *data, size_t k) {
    const uint8_t *at = (const uint8_t *)data + k * width;
    uint64_t bits = 0;
    float narrow;
    double wide;
    if (type == 'f' && width == 4) return memcpy(&narrow, at, 4), narrow;
    if (type == 'f' && width == 8) return memcpy(&wide, at, 8), wide;
    for (size_t i = width; i--;) bits = bits << 8 | at[i];
    if (type == 'f') return vd_float_of_half((uint16_t)bits);
    uint64_t sign = (uint64_t)1 << (8 * width - 1);
    if (type != 'i' || !(bits & sign)) return (double)bits;
    return -(double)((~bits & (sign - 1)) + 1);
}

static double number_at(const obs_part *part, const uint8_t *data, size_t k) {
    return vd_number_at(part->type, part->width, data, k);
}

bool vd_is_finite(char type, size_t width, const void *data, size_t count) {
    for (size_t k = 0; type == 'f' && k < count; k++)
        if (!isfinite(vd_number_at(type, width, data, k))) return false;
    return true;
}

static void set_classes(const policy *p, const policy_input *input, const obs_part *part, const uint8_t *data,
                        float *x) {
    memset(x, 0, input->features * sizeof *x);
    for (size_t k = 0; k < input->classes; k++) {
        size_t count = p->input_classes.counts[input->first + k];
        double of = number_at(part, data, k) - (double)p->input_classes.starts[input->first + k];
        if (of >= 0 && of < (double)count) x[(size_t)of] = 1.0f;
        x += count;
    }
}

static void read_features(const run *r, weights w, const uint8_t *obs, float *x) {
    const policy *p = &r->policy;
    const float *mean = NULL, *scale = NULL;
    if (p->normalize) {
        mean = vd_array(w, p->mean);
        scale = vd_array(w, p->deviation);
    }
    for (unsigned i = 0; i < p->input_count; x += p->inputs[i++].features) {
        const policy_input *input = p->inputs + i;
        const obs_part *part = r->parts + input->part;
        if (input->classes) {
            set_classes(p, input, part, obs + part->offset, x);
            continue;
        }
        for (size_t k = 0; k < input->features; k++) {
            float value = (float)number_at(part, obs + part->offset, k);
            if (input->normalized) value = fmaxf(-p->clip, fminf(p->clip, (value - *mean++) * *scale++));
            x[k] = value * input->scale;
        }
    }
}

/* The network's outputs. Working memory: four parts of its own, and four of each network. */

static float *memory_part(const policy *p, float *memory, unsigned k) { return memory + k * p->widest; }

size_t vd_acting_memory(const run *r) { return 8 * r->policy.widest + 1; }

#define RESCALING_EPS 1e-3f

/* The number of which h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x was learned, without differences that lose digits. */
static float restore(float y) {
    float size = fabsf(y), slope = 1 + 2 * RESCALING_EPS;
    float root = 2 * size / (slope + sqrtf(slope * slope + 4 * RESCALING_EPS * size));
    return copysignf(root * (root + 2), y);
}

/* The mean over the quantile fractions: drawn, or the midpoints of as many equal parts. */
static void mean_of_quantiles(const policy *p, weights w, uint64_t *random, const float *psi, float *q, float *memory) {
    float *x = memory_part(p, memory, 1), *sum = memory_part(p, memory, 2), *layers = memory_part(p, memory, 4);
    memset(sum, 0, p->outputs * sizeof *sum);
    for (size_t k = 0; k < p->fractions; k++) {
        double tau = random ? vd_random_unit(random) : ((double)k + 0.5) / (double)p->fractions;
        for (size_t i = 0; i < p->cosines; i++) x[i] = (float)cos(PI * (double)i * tau);
        vd_apply_network(p->networks + 1, w, x, NULL, x, layers);
        for (size_t i = 0; i < p->networks[1].out; i++) x[i] *= psi[i];
        vd_apply_network(p->networks + 2, w, x, NULL, x, layers);
        for (size_t i = 0; i < p->outputs; i++) sum[i] += p->head == QUANTILES ? x[i] : restore(x[i]);
    }
    for (size_t i = 0; i < p->outputs; i++) q[i] = sum[i] / (float)p->fractions;
}

static void dueling(const policy *p, weights w, const float *h, float *q, float *memory) {
    float *value = memory_part(p, memory, 1), *layers = memory_part(p, memory, 4), mean = 0;
    vd_apply_network(p->networks + 1, w, h, NULL, value, layers);
    vd_apply_network(p->networks + 2, w, h, NULL, q, layers);
    for (size_t k = 0; k < p->outputs; k++) mean += q[k] / (float)p->outputs;
    for (size_t k = 0; k < p->outputs; k++) q[k] += *value - mean;
}

static const float *outputs(const run *r, weights w, uint64_t *random, const void *obs, float *state,
                            float *memory) {
    const policy *p = &r->policy;
    float *x = memory, *encoded = memory_part(p, memory, 1), *y = memory_part(p, memory, 3);
    float *layers = memory_part(p, memory, 4);
    read_features(r, w, obs, x);
    if (p->branch_count) {
        float *to = encoded;
        const float *from = x;
        for (unsigned k = 0; k < p->branch_count; k++) {
            vd_apply_network(&p->branches[k].encoder, w, from, NULL, to, layers);
            from += p->branches[k].features;
            to += p->branches[k].encoder.out;
        }
        x = encoded;
    }
    float *h = p->head == DUELING || vd_has_quantiles(p) ? memory : y;
    vd_apply_network(p->networks, w, x, state, h, layers);
    if (p->head == DUELING) dueling(p, w, h, y, memory);
    if (vd_has_quantiles(p)) mean_of_quantiles(p, w, random, h, y, memory);
    return y;
}

/* Choosing */

static double epsilon(const policy *p, uint64_t version, double rank) {
    double done;
    switch (p->exploration) {
    case LADDER: return pow(p->epsilon_base, 1.0 + p->epsilon_alpha * rank);
    case LINEAR_EPSILON:
        done = p->epsilon_steps > 0 ? (double)version / p->epsilon_steps : 1.0;
        return p->epsilon_start + (done < 1.0 ? done : 1.0) * (p->epsilon_final - p->epsilon_start);
    case CONSTANT: return p->epsilon_final;
    default: return 0.0;
    }
}

static size_t choose(const policy *p, const float *q, size_t count, double eps, uint64_t *random) {
    size_t best = 0;
    double most = -INFINITY;
    if (random && p->exploration != SOFTMAX && vd_random_unit(random) < eps)
        return (size_t)(vd_random_unit(random) * (double)count);
    for (size_t k = 0; k < count; k++) {
        double value = q[k];
        if (random && p->exploration == SOFTMAX) /* argmax of q / T + Gumbel noise draws from the softmax */
            value = value / p->temperature - log(-log(1.0 - vd_random_unit(random)));
        if (value > most) {
            most = value;
            best = k;
        }
    }
    return best;
}

static void put_integer(const run_column *column, uint8_t *data, size_t k, int64_t number) {
    for (size_t i = 0; i < column->width; i++)
        data[k * column->width + i] = (uint8_t)((uint64_t)number >> 8 * i);
}

static void put_float(const run_column *column, uint8_t *data, size_t k, float number) {
    double wide = number;
    if (column->width == 8) memcpy(data + 8 * k, &wide, 8);
    else memcpy(data + 4 * k, &number, 4);
}

/* An action by its probability, with the logarithm of that. */
static size_t draw(const float *logits, size_t count, uint64_t *random, double *log_prob) {
    double most = -INFINITY, sum = 0, reached = 0;
    for (size_t k = 0; k < count; k++) most = fmax(most, logits[k]);
    for (size_t k = 0; k < count; k++) sum += exp(logits[k] - most);
    double until = vd_random_unit(random) * sum;
    size_t chosen = 0;
    for (; chosen + 1 < count && (reached += exp(logits[chosen] - most)) <= until; chosen++) {}
    *log_prob += logits[chosen] - most - log(sum);
    return chosen;
}

/* A number of a Gaussian, not bounded, with the logarithm of its density: of the number as it is stored, for with a
 * small deviation its rounding is a part of z. */
static float draw_normal(double mean, double log_std, uint64_t *random, double *log_prob) {
    float number = (float)(mean + exp(log_std) * vd_random_normal(random));
    double z = ((double)number - mean) * exp(-log_std);
    *log_prob -= 0.5 * (z * z + log(2.0 * PI)) + log_std;
    return number;
}

/* A number in [-1, 1], before it is mapped to the bounds of its dimension. */
static double unit_action(const policy *p, const float *y, size_t d, uint64_t version, const acting *by) {
    uint64_t *random = by->random;
    if (!random) return tanh((double)y[d]);
    if (version == 0 && p->uniform_warmup) return 2.0 * vd_random_unit(random) - 1.0;
    double z = by->noise ? (double)by->noise[d] : vd_random_normal(random);
    if (p->head == DETERMINISTIC) return fmax(-1.0, fmin(1.0, tanh((double)y[d]) + p->noise * z));
    double log_std = fmax(p->log_std_min, fmin(p->log_std_max, y[p->dimensions + d]));
    return tanh((double)y[d] + exp(log_std) * z);
}

void vd_remember(const run *r, const uint8_t *model, const void *obs, float *state, float *memory) {
    outputs(r, (weights){&r->model, model}, NULL, obs, state, memory);
}

/* The number of a Gaussian whose deviations are an array of the model. */
static float gaussian_number(const policy *p, weights w, const float *y, size_t d, uint64_t *random,
                             double *log_prob) {
    double log_std = fmax(p->log_std_min, fmin(p->log_std_max, vd_array(w, p->log_stds)[d]));
    return random ? draw_normal(y[d], log_std, random, log_prob) : y[d];
}

void vd_act(const run *r, const uint8_t *model, uint64_t version, const void *obs, const acting *by, float *memory,
            void *action) {
    const policy *p = &r->policy;
    const run_column *column = r->rows.columns + r->action;
    weights w = {&r->model, model};
    const float *y = outputs(r, w, by->random, obs, by->state, memory);
    uint64_t counted = version > p->explore_from ? version - p->explore_from : 0;
    double eps = epsilon(p, counted, by->rank), log_prob = 0;
    for (size_t d = 0; d < p->dimensions; d++) {
        if (p->head < GAUSSIAN) {
            bool draws = p->head == CATEGORIES && by->random;
            size_t chosen = draws ? draw(y, p->actions.counts[d], by->random, &log_prob)
                                  : choose(p, y, p->actions.counts[d], eps, by->random);
            put_integer(column, action, d, (int64_t)((uint64_t)p->actions.starts[d] + chosen));
            y += p->actions.counts[d];
        } else {
            float low = p->low[d], high = p->high[d], half = (high - low) * 0.5f, middle = (high + low) * 0.5f;
            float unit = p->head == NORMAL ? gaussian_number(p, w, y, d, by->random, &log_prob)
                                           : (float)unit_action(p, y, d, counted, by);
            if (p->head == NORMAL && by->drawn) by->drawn[1 + d] = unit;
            put_float(column, action, d, fmaxf(low, fminf(high, middle + half * unit)));
        }
    }
    if (by->drawn) *by->drawn = (float)log_prob;
}
