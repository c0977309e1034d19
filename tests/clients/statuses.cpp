// A C++ program that plays for no learner: it tries what each function returns then, and prints what is not as
// vedette.h says. It stands for programs of other releases, too: their structures are smaller or larger.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "vedette.h"

namespace {

int wrong = 0;

void expect(bool holds, const char *what) {
    if (holds) return;
    std::printf("not so: %s\n", what);
    wrong = 1;
}

bool says(const vedette *v, const char *words) { return std::string(vedette_error(v)).find(words) != std::string::npos; }

vedette_options without_learner() {
    vedette_options options{};
    options.host = "127.0.0.1";
    options.port = 9;  // nobody listens there
    options.id = "robot-1";
    options.wait_s = -1;
    return options;
}

void try_without_a_learner() {
    const vedette_options options = without_learner();
    const float obs[4] = {};
    std::int64_t action = 7;
    std::size_t bytes = 1;
    vedette *v = vedette_open(&options);
    expect(v != nullptr, "a client opens");
    expect(!*vedette_error(v), "nothing is wrong");
    expect(vedette_obs_bytes(v) == 0 && vedette_action_bytes(v) == 0, "sizes are 0 before there is a run");
    expect(vedette_obs_offset(v, "", &bytes) == SIZE_MAX && bytes == 0, "there is no part before there is a run");
    expect(vedette_array(v, "weight", &bytes) == nullptr, "there is no array before there is a model");
    expect(vedette_wait(v, -1) == VEDETTE_WAIT, "wait: nothing within the time given");
    expect(vedette_begin(v, 0, obs) == VEDETTE_WAIT, "begin: there is no run");
    expect(vedette_act(v, 0, &action) == VEDETTE_WAIT && action == 7, "act: there is no model, and no action");
    expect(vedette_greedy(v, obs, &action) == VEDETTE_WAIT && action == 7, "greedy: there is no model");
    vedette_interrupt(v);
    expect(vedette_wait(v, 0) == VEDETTE_END, "wait after an interrupt");
    expect(vedette_begin(v, 0, obs) == VEDETTE_END, "begin after an interrupt");
    expect(vedette_act(v, 0, &action) == VEDETTE_END, "act after an interrupt");
    expect(vedette_greedy(v, obs, &action) == VEDETTE_END, "greedy after an interrupt");
    expect(vedette_set_action(v, 0, &action) == VEDETTE_ERROR, "set_action before begin");
    expect(says(v, "before vedette_begin"), "set_action says what is wrong");
    expect(vedette_observe(v, 0, 0.0, obs, false, false) == VEDETTE_ERROR, "observe without an action");
    expect(vedette_begin(v, 1, obs) == VEDETTE_ERROR, "begin of an environment that there is not");
    expect(!vedette_close(v, 0), "close after an error");
    expect(!vedette_close(nullptr, 0), "close of no client");
}

// A program that was compiled with the header of a later release, which has one more option and one more number.
void try_a_later_header() {
    struct Later {
        vedette_options known;
        std::uint64_t added;
    } later{without_learner(), 0};
    struct LaterStats {
        vedette_stats known;
        std::uint64_t added;
    } stats;
    std::memset(&stats, 0xff, sizeof stats);
    vedette *v = vedette_open_sized(&later.known, sizeof later);
    expect(!*vedette_error(v), "a later option at its default is no error");
    vedette_get_stats_sized(v, &stats.known, sizeof stats);
    expect(stats.known.env_steps == 0 && stats.added == 0, "numbers that the library does not know are 0");
    expect(vedette_close(v, 0), "there was nothing to settle");
    later.added = 1;
    v = vedette_open_sized(&later.known, sizeof later);
    expect(says(v, "older than the vedette.h"), "a later option that is set is an error");
    expect(vedette_wait(v, 0) == VEDETTE_ERROR, "wait after an error");
    vedette_close(v, 0);
}

// A program of an earlier release has fewer numbers: what lies behind them is not written.
void try_an_earlier_header() {
    struct {
        std::uint64_t env_steps, episodes, behind;
    } few = {1, 1, 1};
    const vedette_options options = without_learner();
    vedette *v = vedette_open(&options);
    vedette_get_stats_sized(v, reinterpret_cast<vedette_stats *>(&few), 2 * sizeof(std::uint64_t));
    expect(few.env_steps == 0 && few.episodes == 0 && few.behind == 1, "as many bytes as there is room for");
    vedette_close(v, 0);
    v = vedette_open_sized(&options, sizeof options.host);
    expect(says(v, "call vedette_open"), "a size of no release is an error");
    vedette_close(v, 0);
}

}  // namespace

int main() {
    expect(vedette_version() == VEDETTE_VERSION, "library and header are of one release");
    try_without_a_learner();
    try_a_later_header();
    try_an_earlier_header();
    return wrong;
}
