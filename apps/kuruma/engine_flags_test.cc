#include "engine_flags.h"

#include <gtest/gtest.h>

namespace kuruma {
namespace {

// Options after parsing `line` as a command of its own.
Result<engine::EngineOptions> Parse(const std::string& line) {
  CLI::App app;
  EngineFlags flags;
  AddEngineFlags(&app, &flags);
  try {
    app.parse(line);
  } catch (const CLI::ParseError& e) {
    return InvalidArgument(e.what());
  }
  return ToOptions(flags);
}

TEST(EngineFlags, DefaultsAreThoseOfTheEngine) {
  const auto got = Parse("");
  ASSERT_TRUE(got.ok());
  const engine::EngineOptions want;
  EXPECT_EQ(got->max_sequences, want.max_sequences);
  EXPECT_EQ(got->max_step_tokens, want.max_step_tokens);
  EXPECT_EQ(got->kv_bytes, want.kv_bytes);
  EXPECT_EQ(got->target_tpot_ms, want.target_tpot_ms);
  EXPECT_EQ(got->synchronous, want.synchronous);
  EXPECT_EQ(got->prefix_cache, want.prefix_cache);
  EXPECT_EQ(got->bounded_replay, want.bounded_replay);
  EXPECT_EQ(got->chaos_seed, want.chaos_seed);
}

TEST(EngineFlags, EveryFlagArrives) {
  const auto got = Parse(
      "--max-sequences 3 --max-step-tokens 7 --kv-memory 2MiB --sync --no-prefix-cache "
      "--replay bounded --target-tpot-ms 2.5 --chaos 9223372036854775807");
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->max_sequences, 3);
  EXPECT_EQ(got->max_step_tokens, 7);
  EXPECT_EQ(got->kv_bytes, 2 << 20);
  EXPECT_TRUE(got->synchronous);
  EXPECT_FALSE(got->prefix_cache);
  EXPECT_TRUE(got->bounded_replay);
  EXPECT_EQ(got->target_tpot_ms, 2.5);
  EXPECT_EQ(got->chaos_seed, uint64_t{9223372036854775807u});
}

TEST(EngineFlags, ValuesOutOfRangeAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"--max-sequences 0", "1 to 1048576"},
      {"--max-sequences 64 --max-step-tokens 63", "at least --max-sequences (64)"},
      {"--max-step-tokens 0", "1 to"},
      {"--kv-memory 0", "--kv-memory"},
      {"--kv-memory 1ZiB", "512MiB"},
      {"--replay none", "exact or bounded"},
      {"--target-tpot-ms nan", "0..1000000000"},
      {"--target-tpot-ms=-1", "0..1000000000"},
      {"--target-tpot-ms inf", "0..1000000000"},
      {"--chaos=-1", "--chaos"}};
  for (const auto& [line, words] : cases) {
    const auto got = Parse(line);
    ASSERT_FALSE(got.ok()) << line;
    EXPECT_NE(got.status().message().find(words), std::string::npos) << got.status().message();
  }
}

}  // namespace
}  // namespace kuruma
