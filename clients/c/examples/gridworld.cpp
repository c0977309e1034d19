// A gridworld in C++ whose observations are images: an agent among pillars looks for a goal, which is elsewhere in each
// episode. Several worlds play in one process, and they play the evaluations.
//
//     gridworld HOST PORT ID [KEYS]
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "command.h"

namespace {

constexpr int side = 12;
constexpr int channels = 3;  // the agent, the goal and the walls, 0 or 255
constexpr int most_steps = 60;
constexpr unsigned worlds = 4;

using Image = std::array<std::uint8_t, side * side * channels>;

struct Cell {
    int row;
    int column;
    bool operator==(const Cell &other) const { return row == other.row && column == other.column; }
};

// Pillars inside, and a wall around.
bool is_wall(const Cell &cell) {
    bool border = cell.row == 0 || cell.column == 0 || cell.row == side - 1 || cell.column == side - 1;
    return border || (cell.row % 3 == 0 && cell.column % 3 == 0);
}

struct Outcome {
    double reward;
    bool terminated;
    bool truncated;
};

class Gridworld {
public:
    explicit Gridworld(unsigned seed) : random(seed) { reset(); }

    void reset() {
        steps = 0;
        agent = draw_cell();
        do goal = draw_cell();
        while (goal == agent);
    }

    // 0 is up, 1 right, 2 down, 3 left. A wall lets nobody pass. The goal gives 1, and each step towards it 0.1.
    Outcome step(std::int64_t action) {
        static constexpr std::array<Cell, 4> moves{{{-1, 0}, {0, 1}, {1, 0}, {0, -1}}};
        const Cell &move = moves.at(static_cast<std::size_t>(action));
        const Cell next{agent.row + move.row, agent.column + move.column};
        const int before = distance();
        if (!is_wall(next)) agent = next;
        ++steps;
        const bool found = agent == goal;
        return {0.1 * (before - distance()) + (found ? 1.0 : 0.0), found, !found && steps == most_steps};
    }

    // Rows, columns, channels: the order of the run's schema.
    Image observe() const {
        Image image{};
        for (int row = 0; row < side; ++row) {
            for (int column = 0; column < side; ++column) {
                const Cell cell{row, column};
                const auto first = static_cast<std::size_t>((row * side + column) * channels);
                if (cell == agent) image[first] = 255;
                if (cell == goal) image[first + 1] = 255;
                if (is_wall(cell)) image[first + 2] = 255;
            }
        }
        return image;
    }

private:
    int distance() const { return std::abs(agent.row - goal.row) + std::abs(agent.column - goal.column); }

    Cell draw_cell() {
        std::uniform_int_distribution<int> inside(1, side - 2);
        Cell cell{};
        do cell = {inside(random), inside(random)};
        while (is_wall(cell));
        return cell;
    }

    std::mt19937 random;
    Cell agent{};
    Cell goal{};
    int steps = 0;
};

// One step of one world. VEDETTE_WAIT and VEDETTE_BEGIN are no ends.
vedette_result play(vedette *v, unsigned index, Gridworld &world) {
    std::int64_t action = 0;
    vedette_result result = vedette_act(v, index, &action);
    if (result == VEDETTE_OK) {
        const Outcome outcome = world.step(action);
        const Image image = world.observe();
        result = vedette_observe(v, index, outcome.reward, image.data(), outcome.terminated, outcome.truncated);
        if (result == VEDETTE_END || result == VEDETTE_ERROR) return result;
        if (result != VEDETTE_BEGIN && !outcome.terminated && !outcome.truncated) return VEDETTE_OK;
    } else if (result != VEDETTE_BEGIN) {
        return result;
    }
    world.reset();
    return vedette_begin(v, index, world.observe().data());
}

vedette_result play_all(vedette *v, std::vector<Gridworld> &all) {
    for (unsigned index = 0; index < all.size(); ++index) {
        const vedette_result result = vedette_begin(v, index, all[index].observe().data());
        if (result != VEDETTE_OK) return result;
    }
    for (;;) {
        for (unsigned index = 0; index < all.size(); ++index) {
            const vedette_result result = play(v, index, all[index]);
            if (result == VEDETTE_END || result == VEDETTE_ERROR) return result;
        }
    }
}

}  // namespace

int main(int argc, char **argv) {
    vedette_options options{};
    options.envs = worlds;
    options.obs_bytes = sizeof(Image);
    options.action_bytes = sizeof(std::int64_t);
    options.evaluates = true;
    read_words(argc, argv, 5, "gridworld HOST PORT ID [KEYS]", &options);

    std::vector<Gridworld> all;
    std::random_device entropy;
    for (unsigned index = 0; index < worlds; ++index) all.emplace_back(entropy());

    vedette *v = open_client(&options);
    vedette_result result = wait_for_learner(&options);
    if (result == VEDETTE_OK) result = play_all(v, all);
    if (result == VEDETTE_ERROR) std::fprintf(stderr, "gridworld: %s\n", vedette_error(v));
    const bool settled = vedette_close(v, 10.0);
    return result == VEDETTE_ERROR ? 3 : settled ? 0 : 1;
}
