#include "workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/philox.h"
#include "inputs.h"

namespace kuruma {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostRequests = 1'000'000;
constexpr int64_t kMostLength = int64_t{1} << 30;
constexpr int64_t kMostTokens = int64_t{1} << 28;  // of all prompts: 1 GiB of ids
constexpr double kMostSeconds = 1e9;

// Each purpose draws from a stream of its own, so that one flag never changes what another draws.
enum Purpose : uint32_t { kPromptTokens, kPrefixTokens, kWarmupTokens, kLengths, kArrivals };

class Draws {
 public:
  explicit Draws(uint64_t seed)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

  std::array<uint32_t, 4> Words(Purpose purpose, int64_t which, int64_t at) const {
    return Philox4x32({static_cast<uint32_t>(at), static_cast<uint32_t>(which),
                       static_cast<uint32_t>(static_cast<uint64_t>(which) >> 32), purpose},
                      key_);
  }

  // In [0, 1), 53 bits.
  double Uniform(Purpose purpose, int64_t which, int64_t at) const {
    const std::array<uint32_t, 4> words = Words(purpose, which, at);
    const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
    return static_cast<double>(bits) * 0x1p-53;
  }

  void Append(Purpose purpose, int64_t which, int64_t count, int64_t vocab,
              std::vector<int32_t>* tokens) const {
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t word = Words(purpose, which, i)[0];
      tokens->push_back(static_cast<int32_t>(word % static_cast<uint64_t>(vocab)));
    }
  }

 private:
  std::array<uint32_t, 2> key_;
};

// One request before its tokens are drawn.
struct Shape {
  double arrival_s = 0;
  int64_t input_len = 0;
  int64_t output_len = 0;
  int64_t prefix_len = 0;
  int64_t prefix = 0;
};

Result<Workload> Build(const std::vector<Shape>& shapes, uint64_t seed, int64_t vocab) {
  int64_t total = 0;
  for (const Shape& s : shapes) {
    total += s.input_len + s.prefix_len;
    if (total > kMostTokens) {
      return InvalidArgument(fmt::format("all prompts together may have {} tokens", kMostTokens));
    }
  }
  const Draws draws(seed);
  Workload workload;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Shape& s = shapes[i];
    WorkloadRequest request{s.arrival_s, {}, s.output_len};
    request.prompt.reserve(s.prefix_len + s.input_len);
    draws.Append(kPrefixTokens, s.prefix, s.prefix_len, vocab, &request.prompt);
    draws.Append(kPromptTokens, static_cast<int64_t>(i), s.input_len, vocab, &request.prompt);
    workload.requests.push_back(std::move(request));
  }
  return workload;
}

Status CheckRange(const char* flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return Status();
  return InvalidArgument(fmt::format("{} must be in {}..{}, got {}", flag, least, most, value));
}

// Bounds of lengths around `len`.
int64_t Shortest(int64_t len, double ratio) {
  return std::max<int64_t>(1, std::llround(std::floor(static_cast<double>(len) * (1 - ratio))));
}
int64_t Longest(int64_t len, double ratio) {
  return std::llround(std::ceil(static_cast<double>(len) * (1 + ratio)));
}

Status CheckOptions(const WorkloadOptions& o, const WorkloadLimits& limits) {
  KURUMA_RETURN_IF_ERROR(CheckRange("--num-prompts", o.num_prompts, 1, kMostRequests));
  KURUMA_RETURN_IF_ERROR(CheckRange("--input-len", o.input_len, 1, kMostLength));
  KURUMA_RETURN_IF_ERROR(CheckRange("--output-len", o.output_len, 1, kMostLength));
  KURUMA_RETURN_IF_ERROR(CheckRange("--prefix-len", o.prefix_len, 0, kMostLength));
  KURUMA_RETURN_IF_ERROR(CheckRange("--num-prefixes", o.num_prefixes, 1, kMostRequests));
  if (!(o.range_ratio >= 0 && o.range_ratio < 1)) {
    return InvalidArgument(
        fmt::format("--range-ratio must be at least 0 and below 1, got {}", o.range_ratio));
  }
  constexpr double kLowestRate = 1e-6;
  if (!(o.request_rate >= kLowestRate)) {
    return InvalidArgument(
        fmt::format("--request-rate must be in 0.000001..inf, got {}", o.request_rate));
  }
  const int64_t most =
      o.prefix_len + Longest(o.input_len, o.range_ratio) + Longest(o.output_len, o.range_ratio);
  if (most > limits.context) {
    return InvalidArgument(
        fmt::format("--prefix-len {}, --input-len {} and --output-len {} make up to {} tokens with "
                    "--range-ratio {}; the context is {}",
                    o.prefix_len, o.input_len, o.output_len, most, o.range_ratio, limits.context));
  }
  return Status();
}

// Field `key` of a trace line in least..most; `missing` when it is not there, unless that is < 0.
Result<int64_t> IntegerField(const Json& line, const char* key, int64_t least, int64_t missing) {
  const auto found = line.find(key);
  if (found == line.end()) {
    if (missing < 0) return InvalidArgument(fmt::format("{} is missing", key));
    return missing;
  }
  // Compared before narrowing, so that no huge number wraps into a valid one.
  if (!found->is_number_integer() || *found < least || *found > kMostLength) {
    return InvalidArgument(fmt::format("{} must be an integer in {}..{}, got {}", key, least,
                                       kMostLength,
                                       found->is_number() ? found->dump() : found->type_name()));
  }
  return found->get<int64_t>();
}

Result<Shape> ParseLine(std::string_view text, const WorkloadLimits& limits) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return InvalidArgument("expected one JSON object");
  constexpr std::array<std::string_view, 5> kKeys{"arrival_s", "input_len", "output_len",
                                                  "prefix_len", "prefix"};
  for (const auto& item : line.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), item.key()) == kKeys.end()) {
      return InvalidArgument(fmt::format("unknown field \"{}\"", item.key()));
    }
  }
  Shape shape;
  const auto arrival = line.find("arrival_s");
  if (arrival == line.end()) return InvalidArgument("arrival_s is missing");
  if (!arrival->is_number() || !(*arrival >= 0.0 && *arrival <= kMostSeconds)) {
    return InvalidArgument(
        fmt::format("arrival_s must be a number of seconds in 0..{:.0f}, got {}", kMostSeconds,
                    arrival->is_number() ? arrival->dump() : arrival->type_name()));
  }
  shape.arrival_s = arrival->get<double>();
  KURUMA_ASSIGN_OR_RETURN(shape.input_len, IntegerField(line, "input_len", 1, -1));
  KURUMA_ASSIGN_OR_RETURN(shape.output_len, IntegerField(line, "output_len", 1, -1));
  KURUMA_ASSIGN_OR_RETURN(shape.prefix_len, IntegerField(line, "prefix_len", 0, 0));
  KURUMA_ASSIGN_OR_RETURN(shape.prefix, IntegerField(line, "prefix", 0, 0));
  const int64_t tokens = shape.prefix_len + shape.input_len + shape.output_len;
  if (tokens > limits.context) {
    return InvalidArgument(
        fmt::format("prompt and answer have {} tokens; the context is {}", tokens, limits.context));
  }
  return shape;
}

}  // namespace

Result<Workload> MakeWorkload(const WorkloadOptions& o, const WorkloadLimits& limits) {
  KURUMA_RETURN_IF_ERROR(CheckOptions(o, limits));
  const Draws draws(o.seed);
  const auto length = [&](int64_t request, int64_t which, int64_t len) {
    const int64_t low = Shortest(len, o.range_ratio);
    const int64_t count = Longest(len, o.range_ratio) - low + 1;
    const double u = draws.Uniform(kLengths, request, which);
    return low + std::min(count - 1, static_cast<int64_t>(u * static_cast<double>(count)));
  };
  std::vector<Shape> shapes;
  double arrival_s = 0;
  for (int64_t i = 0; i < o.num_prompts; ++i) {
    // The first one comes at once: gaps are between requests.
    if (i > 0) arrival_s -= std::log1p(-draws.Uniform(kArrivals, i, 0)) / o.request_rate;
    shapes.push_back({arrival_s, length(i, 0, o.input_len), length(i, 1, o.output_len),
                      o.prefix_len, i % o.num_prefixes});
  }
  KURUMA_ASSIGN_OR_RETURN(Workload workload, Build(shapes, o.seed, limits.vocab));
  workload.timed = std::isfinite(o.request_rate);
  return workload;
}

Result<Workload> ParseTrace(std::string_view text, const std::string& name, uint64_t seed,
                            const WorkloadLimits& limits) {
  std::vector<Shape> shapes;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Strip(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const Result<Shape> shape = ParseLine(line, limits);
    if (!shape.ok()) {
      return InvalidArgument(
          fmt::format("{}: line {}: {}", name, number, shape.status().message()));
    }
    shapes.push_back(*shape);
  }
  if (shapes.empty()) return InvalidArgument(name + ": no requests");
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const Shape& a, const Shape& b) { return a.arrival_s < b.arrival_s; });
  Result<Workload> workload = Build(shapes, seed, limits.vocab);
  if (!workload.ok()) return InvalidArgument(name + ": " + workload.status().message());
  workload->timed = true;
  return workload;
}

Workload MakeWarmup(const Workload& like, int64_t count, uint64_t seed, int64_t vocab) {
  const Draws draws(seed);
  Workload workload;
  for (int64_t i = 0; i < count; ++i) {
    const WorkloadRequest& model = like.requests[i % like.requests.size()];
    WorkloadRequest request{0, {}, model.output_tokens};
    draws.Append(kWarmupTokens, i, static_cast<int64_t>(model.prompt.size()), vocab,
                 &request.prompt);
    workload.requests.push_back(std::move(request));
  }
  return workload;
}

}  // namespace kuruma
