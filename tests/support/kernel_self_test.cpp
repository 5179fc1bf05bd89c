// Kernels of a processor that this machine only emulates, against plain loops. Prints errors; returns their number.

#include <cstdio>
#include <random>

#include "kernels.cpp"

namespace {

std::mt19937 generator(1);

std::vector<float> random_numbers(long count) {
    std::normal_distribution<float> normal;
    std::vector<float> numbers(count);
    for (float& each : numbers) each = normal(generator);
    return numbers;
}

int wrong = 0;

void check(const char* name, long index, double found, double expected) {
    if (std::abs(found - expected) <= 1e-4 * (1 + std::abs(expected))) return;
    std::printf("%s[%ld]: %g instead of %g\n", name, index, found, expected);
    ++wrong;
}

void check_log_softmax() {
    constexpr long rows = 3, width = 37;
    const auto logits = random_numbers(rows * width);
    std::vector<float> found(rows * width);
    log_softmax_float32(rows, width, logits.data(), found.data(), 1);
    for (long r = 0; r < rows; ++r) {
        double total = 0;
        for (long v = 0; v < width; ++v) total += std::exp((double)logits[r * width + v]);
        for (long v = 0; v < width; ++v)
            check("log_softmax", v, found[r * width + v], logits[r * width + v] - std::log(total));
    }
}

void check_add_norm() {
    constexpr long rows = 3, width = 48;
    const auto x = random_numbers(rows * width), update = random_numbers(rows * width), weight = random_numbers(width),
               bias = random_numbers(width);
    std::vector<float> sums(rows * width), found(rows * width);
    const Broadcast<float> none = {nullptr, 1, 1, 0, 0, 0};
    add_norm_forward_float32(rows, width, x.data(), update.data(), nullptr, &none, weight.data(), bias.data(),
                             sums.data(), found.data(), nullptr, 1);
    for (long r = 0; r < rows; ++r) {
        double mean = 0, variance = 0;
        for (long e = 0; e < width; ++e) mean += ((double)x[r * width + e] + update[r * width + e]) / width;
        for (long e = 0; e < width; ++e) {
            const double centred = (double)x[r * width + e] + update[r * width + e] - mean;
            variance += centred * centred / width;
        }
        for (long e = 0; e < width; ++e) {
            const double centred = (double)x[r * width + e] + update[r * width + e] - mean;
            const double expected = centred / std::sqrt(variance + 1e-5) * weight[e] + bias[e];
            check("add_norm", r * width + e, found[r * width + e], expected);
        }
    }
}

void check_cached_attention() {
    constexpr long rows = 2, heads = 2, size = 16, capacity = 7, seen = 3, width = heads * size;
    const auto query = random_numbers(rows * width), cache = random_numbers(capacity * 2 * width);
    const int64_t slots[rows * seen] = {0, 2, 5, 0, 3, 6};
    const OwnSlots own = {slots, seen, 5};
    const CacheLayout layout = {1, 1, rows, heads, size, capacity, &own, nullptr};
    std::vector<float> found(rows * width);
    cached_attention_float32(&layout, query.data(), width, cache.data(), found.data(), 1);
    for (long r = 0; r < rows; ++r)
        for (long h = 0; h < heads; ++h) {
            double weights[seen], total = 0;
            for (long j = 0; j < seen; ++j) {
                const float* key = &cache[slots[r * seen + j] * 2 * width + h * size];
                double score = 0;
                for (long d = 0; d < size; ++d) score += (double)query[r * width + h * size + d] * key[d];
                total += weights[j] = std::exp(score / std::sqrt((double)size));
            }
            for (long d = 0; d < size; ++d) {
                double expected = 0;
                for (long j = 0; j < seen; ++j)
                    expected += weights[j] / total * cache[slots[r * seen + j] * 2 * width + width + h * size + d];
                check("cached_attention", d, found[r * width + h * size + d], expected);
            }
        }
}

void check_topk_replayed() {
    const auto values = random_numbers(90);
    float best[2];
    int64_t places[2];
    if (topk_float32(1, 90, values.data(), 2, best, places, 1)) check("topk", 0, 1, 0);
    const auto most = std::max_element(values.begin(), values.end());
    check("topk", 0, places[0], most - values.begin());
    std::vector<float> found(90);
    Argument arguments[6];
    const Broadcast<float> side = {values.data(), 1, 1, 0, 0, 0};
    arguments[0].number = 1, arguments[1].number = 80, arguments[2].pointer = &side, arguments[3].pointer = &side;
    arguments[4].pointer = found.data(), arguments[5].number = 1;
    const Call calls[] = {{replayed_grid_of_sides_float32, arguments}};
    check("replay", 0, replay(calls, 1), 0);
    for (long e = 0; e < 80; ++e) check("grid_of_sides", e, found[e], 2 * values[e]);
}

}  // namespace

int main() {
    check_log_softmax();
    check_add_norm();
    check_cached_attention();
    check_topk_replayed();
    std::printf("%d wrong\n", wrong);
    return wrong != 0;
}
