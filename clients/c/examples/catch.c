/* A game that a learner plays, and a person may take over: balls fall, and the paddle catches them. An episode has
 * five; a ball gives 1 if it was caught, else -1.
 *
 *     catch HOST PORT ID [KEYS]
 *
 * SPACE: as fast as it can, or to be watched; the arrow keys take over. Compiled with NO_WINDOW it is the same game on a
 * host without a display, and without raylib.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifndef NO_WINDOW
#include <raylib.h>
#endif

#include "command.h"

#define BALLS 5
#define FALL 0.03
#define PADDLE_STEP 0.04
#define PADDLE_HALF 0.09
#define TURN_S 0.016 /* of a fast loop between two pictures */

/* Places in [0, 1]: x to the right, y down. */
typedef struct {
    double paddle, x, y, drift;
    int balls, caught;
} game;

static double uniform(double low, double high) { return low + (high - low) * rand() / RAND_MAX; }

static void drop_ball(game *g) {
    g->x = uniform(0.05, 0.95);
    g->y = 0;
    g->drift = uniform(-0.015, 0.015);
}

static void reset(game *g) {
    *g = (game){.paddle = 0.5};
    drop_ball(g);
}

static void observe(const game *g, float obs[4]) {
    obs[0] = (float)(2 * g->paddle - 1);
    obs[1] = (float)(2 * g->x - 1);
    obs[2] = (float)(2 * g->y - 1);
    obs[3] = (float)(g->drift / 0.015);
}

/* One step: 0 is left, 1 stays, 2 is right. */
static double step(game *g, int64_t action) {
    g->paddle = fmax(0, fmin(1, g->paddle + PADDLE_STEP * (double)(action - 1)));
    g->x += g->drift;
    if (g->x < 0 || g->x > 1) g->drift = -g->drift;
    g->x = fmax(0, fmin(1, g->x));
    g->y += FALL;
    if (g->y < 1) return 0;
    bool caught = fabs(g->x - g->paddle) <= PADDLE_HALF;
    g->balls++;
    g->caught += caught;
    drop_ball(g);
    return caught ? 1 : -1;
}

/* One step by the learner's action, or by the person's where `own` is 0, 1 or 2. */
static vedette_result play(vedette *v, game *g, int64_t own) {
    int64_t action;
    float obs[4];
    vedette_result result = vedette_act(v, 0, &action);
    if (result == VEDETTE_OK && own >= 0) {
        action = own;
        result = vedette_set_action(v, 0, &action);
    }
    if (result == VEDETTE_OK) {
        double reward = step(g, action);
        bool ends = g->balls == BALLS;
        observe(g, obs);
        result = vedette_observe(v, 0, reward, obs, ends, false);
        if (!ends || (result != VEDETTE_OK && result != VEDETTE_WAIT)) return result;
    } else if (result != VEDETTE_BEGIN) {
        return result;
    }
    reset(g);
    observe(g, obs);
    return vedette_begin(v, 0, obs);
}

#ifdef NO_WINDOW
static vedette_result run(vedette *v, game *g) {
    vedette_result result;
    while ((result = play(v, g, -1)) == VEDETTE_OK || result == VEDETTE_WAIT || result == VEDETTE_BEGIN) {}
    return result;
}
#else
static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void draw(vedette *v, const game *g, bool fast, const char *waits) {
    vedette_stats s;
    vedette_get_stats(v, &s);
    int width = GetScreenWidth(), height = GetScreenHeight();
    BeginDrawing();
    ClearBackground(RAYWHITE);
    DrawRectangle((int)((g->paddle - PADDLE_HALF) * width), height - 14, (int)(2 * PADDLE_HALF * width), 14, DARKBLUE);
    DrawCircle((int)(g->x * width), (int)(g->y * (height - 14)), 8, MAROON);
    DrawText(TextFormat("%d of %d caught; mean return of the last episodes %.2f", g->caught, g->balls, s.return_mean), 8,
             8, 18, DARKGRAY);
    DrawText(TextFormat("model %d, %d steps; SPACE: %s; arrows: you play", (int)s.version, (int)s.env_steps,
                        fast ? "watch" : "fast"), 8, 30, 18, DARKGRAY);
    DrawText(waits, 8, height / 2, 18, MAROON);
    EndDrawing();
}

static vedette_result run(vedette *v, game *g) {
    bool fast = true;
    vedette_result result = VEDETTE_OK;
    while (!WindowShouldClose() && (result == VEDETTE_OK || result == VEDETTE_WAIT || result == VEDETTE_BEGIN)) {
        int64_t own = IsKeyDown(KEY_LEFT) ? 0 : IsKeyDown(KEY_RIGHT) ? 2 : -1;
        double until = now() + TURN_S;
        if (IsKeyPressed(KEY_SPACE)) fast = !fast;
        do result = play(v, g, own);
        while (fast && own < 0 && result == VEDETTE_OK && now() < until);
        draw(v, g, fast, result == VEDETTE_WAIT ? "the learner takes no samples now" : "");
    }
    return result;
}

/* The window answers while there is no learner yet. */
static vedette_result show_wait(vedette *v, const game *g) {
    vedette_result result = VEDETTE_WAIT;
    while (result == VEDETTE_WAIT && !WindowShouldClose()) {
        result = vedette_wait(v, TURN_S);
        draw(v, g, true, "waiting for the learner");
    }
    return result;
}
#endif

int main(int argc, char **argv) {
    vedette_options options = {.obs_bytes = 4 * sizeof(float), .action_bytes = sizeof(int64_t), .evaluates = true};
    read_words(argc, argv, 5, "catch HOST PORT ID [KEYS]", &options);
    game g;
    float obs[4];
    srand((unsigned)time(NULL));
    reset(&g);
    observe(&g, obs);
#ifndef NO_WINDOW
    options.wait_s = 0.1; /* that a picture may take */
    SetTraceLogLevel(LOG_WARNING);
    InitWindow(640, 480, "catch");
    SetTargetFPS(60);
#endif
    vedette *v = open_client(&options);
#ifdef NO_WINDOW
    vedette_result result = wait_for_learner(&options);
#else
    vedette_result result = show_wait(v, &g);
#endif
    if (result == VEDETTE_OK) result = vedette_begin(v, 0, obs);
    if (result == VEDETTE_OK) result = run(v, &g);
    if (result == VEDETTE_ERROR) fprintf(stderr, "catch: %s\n", vedette_error(v));
#ifndef NO_WINDOW
    CloseWindow();
#endif
    bool settled = vedette_close(v, 10.0);
    return result == VEDETTE_ERROR ? 3 : settled ? 0 : 1;
}
