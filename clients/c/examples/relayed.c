/* A cart that is driven by relay.py, which keeps its samples in an outbox: CartPole with physics of
 * its own (as in cartpole.c), one environment. It links no library.
 *
 *     cc -O2 -o relayed relayed.c -lm
 *     python relay.py HOST:PORT OUTBOX ./relayed
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define EPISODE_STEPS 500

enum { BEGINS = 1, TERMINATED = 2, TRUNCATED = 4 };

typedef struct {
    float obs[4];
    float reward;
    uint32_t flags;
} step_message;

static double x, x_dot, theta, theta_dot;

static double small(void) { return 0.1 * rand() / RAND_MAX - 0.05; }

static int tell(float reward, uint32_t flags) {
    step_message m = {{(float)x, (float)x_dot, (float)theta, (float)theta_dot}, reward, flags};
    return fwrite(&m, sizeof m, 1, stdout) == 1 && fflush(stdout) == 0;
}

static void drive(int64_t action) {
    double force = action ? 10.0 : -10.0, cosine = cos(theta), sine = sin(theta);
    double pull = (force + 0.05 * theta_dot * theta_dot * sine) / 1.1;
    double turn = (9.8 * sine - cosine * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1));
    x += 0.02 * x_dot;
    x_dot += 0.02 * (pull - 0.05 * turn * cosine / 1.1);
    theta += 0.02 * theta_dot;
    theta_dot += 0.02 * turn;
}

int main(void) {
    int64_t action;
    int steps = 0;
    uint32_t ended = TERMINATED;
    srand((unsigned)time(NULL));
    for (;;) {
        if (ended) {
            x = small(), x_dot = small(), theta = small(), theta_dot = small();
            steps = 0;
            if (!tell(0, BEGINS)) return 1;
        }
        if (fread(&action, sizeof action, 1, stdin) != 1) return 0; /* the relay has ended */
        drive(action);
        int fell = fabs(x) > 2.4 || fabs(theta) > 12 * 2 * 3.14159265358979 / 360;
        ended = fell ? TERMINATED : ++steps >= EPISODE_STEPS ? TRUNCATED : 0;
        if (!tell(1, ended)) return 1;
    }
}
