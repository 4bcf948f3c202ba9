// The signature promise, on bits of logits: a result never depends on chunking, batch, threads,
// prefill mode (exact against full), verification or rollback.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "tests/support/planted_ops.h"
#include "tests/support/tiny_model.h"

namespace kuruma::model {
namespace {

using testing::LoadTiny;
using testing::RandomTokens;
using testing::Tiny;
using testing::TinyOptions;

// Feeds a prompt in chunks of the given sizes (the last one repeats); returns the logits wanted of
// every chunk, concatenated.
std::vector<float> Prefill(Model& model, SequenceState* state, const std::vector<int32_t>& prompt,
                           const std::vector<int64_t>& chunks, LogitRows wanted) {
  std::vector<float> logits;
  const int64_t end = state->position() + static_cast<int64_t>(prompt.size());
  size_t next = 0;
  for (size_t chunk = 0; next < prompt.size(); ++chunk) {
    const size_t size =
        std::min<size_t>(chunks[std::min(chunk, chunks.size() - 1)], prompt.size() - next);
    const SequenceInput input{state, {prompt.data() + next, size}, end, wanted};
    ForwardResult result;
    const Status status = model.Forward({&input, 1}, nullptr, &result);
    EXPECT_TRUE(status.ok()) << status.message();
    logits.insert(logits.end(), result.logits.begin(), result.logits.end());
    next += size;
  }
  return logits;
}

// Logits of decoding `tokens` one by one.
std::vector<float> Decode(Model& model, SequenceState* state, std::span<const int32_t> tokens) {
  std::vector<float> logits;
  for (const int32_t& token : tokens) {
    const SequenceInput input{state, {&token, 1}, 0, LogitRows::kLast};
    ForwardResult result;
    EXPECT_TRUE(model.Forward({&input, 1}, nullptr, &result).ok());
    logits.insert(logits.end(), result.logits.begin(), result.logits.end());
  }
  return logits;
}

void Append(std::vector<float>* to, const std::vector<float>& from) {
  to->insert(to->end(), from.begin(), from.end());
}

DraftResult Draft(Model& model, const SequenceState& state, int32_t anchor) {
  DraftResult draft;
  const DraftInput input{&state, anchor};
  const auto argmax = [](int64_t, int, std::span<const float> l) { return ArgMax(l); };
  EXPECT_TRUE(model.Draft({&input, 1}, argmax, &draft).ok());
  return draft;
}

// Last logits of a prompt, a few decode steps and a draft after them: what later steps depend on.
std::vector<float> Fingerprint(Model& model, const std::vector<int32_t>& prompt,
                               const std::vector<int64_t>& chunks) {
  SequenceState state(model.layout());
  std::vector<float> bits = Prefill(model, &state, prompt, chunks, LogitRows::kLast);
  Append(&bits, Decode(model, &state, RandomTokens(model, 3, 77)));
  const DraftResult draft = Draft(model, state, 9);
  Append(&bits, draft.logits);
  Append(&bits, draft.confidence_logits);
  return bits;
}

struct Variant {
  std::string checkpoint;
  TinyOptions options;

  friend std::ostream& operator<<(std::ostream& out, const Variant& v) {
    return out << v.checkpoint << " " << v.options.numerics << " " << v.options.kernels;
  }
};

std::vector<Variant> Variants() {
  return {{"nano", {.numerics = "release", .kernels = "cpu"}},
          {"edge", {.numerics = "release", .kernels = "cpu"}},
          {"edge", {.numerics = "exact", .kernels = "cpu"}},
          {"nano", {.numerics = "vendor", .kernels = "cpu"}},
          {"nano", {.numerics = "release", .kernels = "reference"}},
          {"mini", {.numerics = "release", .kernels = "cpu"}}};
}

class Invariance : public ::testing::TestWithParam<Variant> {
 protected:
  Tiny Load(PrefillMode prefill = PrefillMode::kExact, int threads = 1) {
    TinyOptions options = GetParam().options;
    options.prefill = prefill;
    options.threads = threads;
    return LoadTiny(GetParam().checkpoint, options);
  }
};

TEST_P(Invariance, EveryChunkingGivesTheSameBits) {
  Tiny tiny = Load();
  for (int64_t length : {1, 2, 9, 40, 75}) {
    const auto prompt = RandomTokens(*tiny.model, length, 1);
    const auto whole = Fingerprint(*tiny.model, prompt, {length});
    for (const std::vector<int64_t>& chunks :
         std::vector<std::vector<int64_t>>{{1}, {3}, {5}, {7, 1, 30}, {length - 1, 1}}) {
      if (chunks[0] == 0) continue;
      EXPECT_EQ(whole, Fingerprint(*tiny.model, prompt, chunks))
          << "length " << length << " chunks of " << chunks[0];
    }
  }
}

TEST_P(Invariance, PrefillEqualsDecodingTheSameTokens) {
  Tiny tiny = Load();
  const auto prompt = RandomTokens(*tiny.model, 45, 2);
  SequenceState at_once(tiny.model->layout()), split(tiny.model->layout());
  const auto all = Prefill(*tiny.model, &at_once, prompt, {45}, LogitRows::kAll);
  auto parts =
      Prefill(*tiny.model, &split, {prompt.begin(), prompt.begin() + 20}, {20}, LogitRows::kAll);
  Append(&parts, Decode(*tiny.model, &split, {prompt.data() + 20, 25}));
  EXPECT_EQ(all, parts);
}

TEST_P(Invariance, ThreadsDoNotMatter) {
  Tiny one = Load(), two = Load(PrefillMode::kExact, 2), three = Load(PrefillMode::kExact, 3);
  const auto prompt = RandomTokens(*one.model, 60, 3);
  const auto bits = Fingerprint(*one.model, prompt, {60});
  EXPECT_EQ(bits, Fingerprint(*two.model, prompt, {60}));
  EXPECT_EQ(bits, Fingerprint(*three.model, prompt, {17}));
}

// Longer than the trapezoid (window + (decoder layers - 1) * (window - 1)), so that rows are
// skipped.
TEST_P(Invariance, ExactPrefillEqualsFull) {
  Tiny full = Load(PrefillMode::kFull), exact = Load(PrefillMode::kExact);
  for (int64_t length : {5, 31, 64, 150}) {
    const auto prompt = RandomTokens(*full.model, length, 4);
    const auto bits = [&](Model& model, const std::vector<int64_t>& chunks) {
      SequenceState state(model.layout());
      auto logits = Prefill(model, &state, prompt, chunks, LogitRows::kLast);
      logits.erase(logits.begin(), logits.end() - model.config().vocab);  // full: one per chunk
      Append(&logits, Decode(model, &state, RandomTokens(model, 3, 77)));
      Append(&logits, Draft(model, state, 9).logits);
      // A second turn on top of the first.
      auto more = Prefill(model, &state, RandomTokens(model, 70, 5), chunks, LogitRows::kLast);
      logits.insert(logits.end(), more.end() - model.config().vocab, more.end());
      Append(&logits, Decode(model, &state, RandomTokens(model, 2, 78)));
      return logits;
    };
    const auto expected = bits(*full.model, {length});
    EXPECT_EQ(expected, bits(*exact.model, {length})) << length;
    EXPECT_EQ(expected, bits(*exact.model, {11})) << length;
    EXPECT_EQ(expected, bits(*full.model, {13, 4})) << length;
  }
}

// Rows that compact prefill keeps are those of a full pass with the narrowed window.
TEST_P(Invariance, CompactPrefillEqualsItsMaskedForm) {
  Tiny tiny = Load(PrefillMode::kCompact);
  const int64_t vocab = tiny.model->config().vocab;
  const auto prompt = RandomTokens(*tiny.model, 120, 6);
  SequenceState masked(tiny.model->layout()), compact(tiny.model->layout()),
      chunked(tiny.model->layout());
  const auto all = Prefill(*tiny.model, &masked, prompt, {120}, LogitRows::kAll);
  std::vector<float> expected(all.end() - vocab, all.end());
  Append(&expected, Decode(*tiny.model, &masked, {prompt.data(), 4}));
  auto bits = Prefill(*tiny.model, &compact, prompt, {120}, LogitRows::kLast);
  Append(&bits, Decode(*tiny.model, &compact, {prompt.data(), 4}));
  EXPECT_EQ(expected, bits);
  bits = Prefill(*tiny.model, &chunked, prompt, {23}, LogitRows::kLast);
  Append(&bits, Decode(*tiny.model, &chunked, {prompt.data(), 4}));
  EXPECT_EQ(expected, bits);
}

TEST_P(Invariance, NeighboursInTheBatchDoNotMatter) {
  Tiny tiny = Load();
  Model& model = *tiny.model;
  constexpr int kSequences = 5;
  std::vector<std::vector<float>> alone, together(kSequences);
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < kSequences; ++i) {
    prompts.push_back(RandomTokens(model, 11 + 13 * i, 10 + i));
    SequenceState state(model.layout());
    alone.push_back(Prefill(model, &state, prompts[i], {1000}, LogitRows::kLast));
    Append(&alone[i], Decode(model, &state, RandomTokens(model, 12, 20 + i)));
  }
  // Sequence i starts at step i, so that prompts and decodes share passes.
  std::vector<SequenceState> states;
  for (int i = 0; i < kSequences; ++i) states.emplace_back(model.layout());
  for (int step = 0; step < 12 + kSequences; ++step) {
    std::vector<SequenceInput> inputs;
    std::vector<int> who;
    std::vector<std::vector<int32_t>> decode_tokens(kSequences);
    for (int i = kSequences - 1; i >= 0; --i) {
      if (step < i || step > i + 12) continue;
      const auto length = static_cast<int64_t>(prompts[i].size());
      decode_tokens[i] = RandomTokens(model, 12, 20 + i);
      if (step == i) {
        inputs.push_back({&states[i], prompts[i], length, LogitRows::kLast});
      } else {
        inputs.push_back(
            {&states[i], {decode_tokens[i].data() + step - i - 1, 1}, 0, LogitRows::kLast});
      }
      who.push_back(i);
    }
    ForwardResult result;
    ASSERT_TRUE(model.Forward(inputs, nullptr, &result).ok());
    for (size_t k = 0; k < who.size(); ++k) {
      const auto row = result.Row(result.first_row[k]);
      together[who[k]].insert(together[who[k]].end(), row.begin(), row.end());
    }
  }
  for (int i = 0; i < kSequences; ++i) EXPECT_EQ(alone[i], together[i]) << "sequence " << i;
}

// Verifying k rows equals k decodes, and rejected rows leave no trace, whatever is accepted.
TEST_P(Invariance, VerifyAndRollBackEqualDecoding) {
  Tiny tiny = Load();
  Model& model = *tiny.model;
  const int64_t vocab = model.config().vocab;
  const auto prompt = RandomTokens(model, 33, 30);
  const auto continuation = RandomTokens(model, 60, 31);
  SequenceState plain(model.layout()), speculative(model.layout());
  Prefill(model, &plain, prompt, {33}, LogitRows::kLast);
  Prefill(model, &speculative, prompt, {33}, LogitRows::kLast);
  const auto expected = Decode(model, &plain, continuation);
  std::mt19937 random(32);
  size_t done = 0;
  while (done < continuation.size()) {
    const size_t rows =
        std::min<size_t>(1 + random() % model.layout().slack, continuation.size() - done);
    const size_t accepted = 1 + random() % rows;
    std::vector<int32_t> tokens(continuation.begin() + done, continuation.begin() + done + rows);
    for (size_t i = accepted; i < rows; ++i) tokens[i] = static_cast<int32_t>(random() % vocab);
    const SequenceInput input{&speculative, tokens, 0, LogitRows::kAll};
    ForwardResult result;
    ASSERT_TRUE(model.Forward({&input, 1}, nullptr, &result).ok());
    for (size_t i = 0; i < accepted; ++i) {
      const auto row = result.Row(static_cast<int64_t>(i));
      EXPECT_TRUE(std::equal(row.begin(), row.end(), expected.begin() + (done + i) * vocab))
          << "token " << done + i << " verified with " << rows << " rows";
    }
    ASSERT_TRUE(speculative.Truncate(speculative.position() - (rows - accepted)).ok());
    done += accepted;
  }
  EXPECT_EQ(Draft(model, plain, 5).logits, Draft(model, speculative, 5).logits);
}

// Memory of blocks that states share.
class BlockPool {
 public:
  BlockPool(const StateLayout& layout, size_t blocks) : bytes_(layout.block_bytes) {
    for (size_t i = 0; i < blocks; ++i) memory_.push_back(std::make_unique<std::byte[]>(bytes_));
  }

  // Blocks first, first + 1, ...: `shared` of them those of a sequence before, then new ones.
  std::vector<std::byte*> Table(size_t shared, size_t own) {
    std::vector<std::byte*> table;
    for (size_t i = 0; i < shared; ++i) table.push_back(memory_[i].get());
    for (size_t i = 0; i < own; ++i) table.push_back(memory_.at(next_++).get());
    return table;
  }

  std::vector<std::byte> Copy(size_t blocks) const {
    std::vector<std::byte> bytes;
    for (size_t i = 0; i < blocks; ++i) {
      bytes.insert(bytes.end(), memory_[i].get(), memory_[i].get() + bytes_);
    }
    return bytes;
  }

 private:
  int64_t bytes_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  size_t next_ = 0;
};

// A prompt whose beginning another sequence has computed gives the bits of a cold run, and shared
// blocks are not written.
TEST_P(Invariance, ResumedPromptsEqualColdOnes) {
  for (const PrefillMode mode : {PrefillMode::kExact, PrefillMode::kFull}) {
    Tiny tiny = Load(mode);
    Model& model = *tiny.model;
    for (const int64_t length : {129, 130, 200, 257, 383}) {
      const auto prompt = RandomTokens(model, length, 60);
      const auto finish = [&](SequenceState* state, std::span<const int32_t> rest, int64_t chunk) {
        auto bits = Prefill(model, state, {rest.begin(), rest.end()}, {chunk}, LogitRows::kLast);
        bits.erase(bits.begin(), bits.end() - model.config().vocab);  // full: one per chunk
        Append(&bits, Decode(model, state, RandomTokens(model, 4, 61)));
        Append(&bits, Draft(model, *state, 9).logits);
        return bits;
      };
      BlockPool pool(model.layout(), 40);
      SequenceState cold(model.layout());
      cold.blocks.Use(pool.Table(0, 4));
      const auto expected = finish(&cold, prompt, length);
      for (int64_t blocks = 1; blocks * kBlockTokens < length; ++blocks) {
        const int64_t stored = blocks * kBlockTokens;
        const int64_t from = model.ReplayFrom(stored, length);
        const auto before = pool.Copy(blocks);
        for (const int64_t chunk : {length, int64_t{37}}) {
          SequenceState warm =
              ResumeSequence(model.layout(), {prompt.data(), static_cast<size_t>(stored)},
                             pool.Table(blocks, 4 - blocks), {.position = from});
          const auto bits = finish(&warm, std::span(prompt).subspan(from), chunk);
          EXPECT_EQ(expected, bits) << length << " tokens, " << stored << " stored, from " << from
                                    << ", chunks of " << chunk;
        }
        SequenceState part(model.layout());
        Prefill(model, &part, {prompt.begin(), prompt.begin() + stored}, {50}, LogitRows::kNone);
        const std::vector<std::byte> windows = part.SaveWindows();
        EXPECT_EQ(static_cast<int64_t>(windows.size()), model.layout().snapshot_bytes);
        SequenceState restored = ResumeSequence(
            model.layout(), {prompt.data(), static_cast<size_t>(stored)},
            pool.Table(blocks, 4 - blocks), {.position = stored, .windows = windows});
        EXPECT_EQ(expected, finish(&restored, std::span(prompt).subspan(stored), 41))
            << length << " tokens, windows saved at " << stored;
        EXPECT_EQ(before, pool.Copy(blocks)) << "a shared block was written";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, Invariance, ::testing::ValuesIn(Variants()), [](const auto& info) {
  const TinyOptions& o = info.param.options;
  return info.param.checkpoint + "_" + o.numerics + "_" + o.kernels;
});

// The mistake that these tests exist for: they must notice it.
TEST(InverseInvariance, AnOrderDependentReductionIsNoticed) {
  const kernels::OpTable planted = testing::OrderDependentOps();
  Tiny tiny = LoadTiny("nano", {.numerics = "exact", .ops = &planted});
  const auto prompt = RandomTokens(*tiny.model, 30, 40);
  EXPECT_NE(Fingerprint(*tiny.model, prompt, {30}), Fingerprint(*tiny.model, prompt, {1}));
}

TEST(SequenceStateTest, RollbackHasLimits) {
  Tiny tiny = LoadTiny("nano", {.kernels = "reference"});
  SequenceState state(tiny.model->layout());
  Prefill(*tiny.model, &state, RandomTokens(*tiny.model, 20, 50), {20}, LogitRows::kLast);
  EXPECT_FALSE(state.Truncate(19).ok()) << "decoder rows of a prompt may have been skipped";
  Decode(*tiny.model, &state, RandomTokens(*tiny.model, 9, 51));
  const int64_t slack = tiny.model->layout().slack;
  EXPECT_FALSE(state.Truncate(29 - slack - 1).ok());
  EXPECT_FALSE(state.Truncate(30).ok());
  EXPECT_TRUE(state.Truncate(29 - slack).ok());
  EXPECT_EQ(state.position(), 29 - slack);
}

TEST(ForwardInput, BadInputIsRefusedAndChangesNothing) {
  Tiny tiny = LoadTiny("nano", {.kernels = "reference"});
  SequenceState state(tiny.model->layout());
  ForwardResult result;
  const std::vector<int32_t> good{1, 2, 3}, bad{1, 256, 3}, negative{-1};
  const auto forward = [&](std::span<const int32_t> tokens, int64_t prompt_end) {
    const SequenceInput input{&state, tokens, prompt_end, LogitRows::kLast};
    return tiny.model->Forward({&input, 1}, nullptr, &result);
  };
  for (const Status& status :
       {forward(bad, 3), forward(negative, 1), forward({}, 0), forward(good, 2)}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_FALSE(status.message().empty());
    EXPECT_EQ(state.position(), 0);
  }
  const SequenceInput twice{&state, good, 3, LogitRows::kLast};
  const SequenceInput inputs[] = {twice, twice};
  EXPECT_FALSE(tiny.model->Forward(inputs, nullptr, &result).ok());
  EXPECT_TRUE(forward(good, 10).ok());
  EXPECT_EQ(result.first_row.back(), 0) << "an unfinished prompt has no logits";
  EXPECT_FALSE(forward(good, 0).ok()) << "decoding inside an unfinished prompt";
  std::vector<int32_t> endless(tiny.model->config().max_positions, 1);
  EXPECT_NE(forward(endless, 0).message().find("context is 4096"), std::string::npos);
}

}  // namespace
}  // namespace kuruma::model
