// Replays tests/traces/*.txt: arrivals in, plans out. The format is in the README there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "scheduler/fake_engine_test_util.h"

namespace kuruma::scheduler {
namespace {

using Lines = std::vector<std::string>;

// "name=number" words of a line, taken one by one.
class Values {
 public:
  explicit Values(std::istringstream& words) {
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) throw std::runtime_error("no = in " + word);
      values_[word.substr(0, equals)] = std::stod(word.substr(equals + 1));
    }
  }

  bool Has(const std::string& name) const { return values_.contains(name); }

  template <typename T>
  void Take(const std::string& name, T* value) {
    const auto found = values_.find(name);
    if (found == values_.end()) return;
    *value = static_cast<T>(found->second);
    values_.erase(found);
  }

  void ExpectEmpty() const {
    if (!values_.empty()) throw std::runtime_error("unknown: " + values_.begin()->first);
  }

 private:
  std::map<std::string, double> values_;
};

// One trace: commands in, what happens out.
class Replay {
 public:
  // Carries out a command and returns what it shows.
  Lines Do(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    shown_.clear();
    if (command == "options") {
      Options(Values(words));
    } else if (engine_ == nullptr) {
      throw std::runtime_error("options come first");
    } else if (command == "admit") {
      Admit(words);
    } else if (command == "cancel") {
      uint64_t id = 0;
      words >> id;
      engine_->Cancel(id);
    } else if (command == "wait") {
      double ms = 0;
      words >> ms;
      now_ms_ += ms;
    } else if (command == "run") {
      int64_t rounds = 0;
      Run(words >> rounds ? rounds : kWhole);
    } else {
      throw std::runtime_error("unknown command " + command);
    }
    return shown_;
  }

  // Everything has ended, with the right tokens, and nothing is held.
  void CheckEnd() { engine_->CheckAnswers(); }

 private:
  static constexpr int64_t kWhole = 5000;  // more than any trace needs

  void Options(Values values) {
    SchedulerOptions o{
        .max_sequences = 4, .max_step_tokens = 64, .context = 1024, .total_blocks = 16};
    values.Take("max_sequences", &o.max_sequences);
    values.Take("max_step_tokens", &o.max_step_tokens);
    values.Take("max_queue", &o.max_queue);
    values.Take("context", &o.context);
    values.Take("total_blocks", &o.total_blocks);
    values.Take("watermark_blocks", &o.watermark_blocks);
    values.Take("starvation_plans", &o.starvation_plans);
    values.Take("target_tpot_ms", &o.target_tpot_ms);
    values.Take("prefix_cache", &o.prefix_cache);
    values.Take("ahead", &ahead_);
    values.Take("step_ms", &step_ms_);
    values.Take("row_ms", &row_ms_);
    kv::BlockCacheOptions cache;
    values.Take("snapshots", &cache.snapshot_bytes);
    o.snapshot_bytes = cache.snapshot_bytes > 0 ? 1 : 0;
    int64_t replayed = 0;
    values.Take("replayed", &replayed);
    o.replay_from = [replayed](int64_t stored, int64_t) {
      return std::max<int64_t>(0, stored - replayed);
    };
    values.ExpectEmpty();
    const Status status = Scheduler::Check(o);
    if (!status.ok()) throw std::runtime_error(status.message());
    engine_ = std::make_unique<FakeEngine>(o, cache);
  }

  void Admit(std::istringstream& words) {
    uint64_t id = 0;
    words >> id;
    Values values(words);
    int64_t kind = static_cast<int64_t>(id), prompt = 1, stops_after = 1 << 30;
    SequenceSpec spec;
    spec.id = Id(id);
    values.Take("kind", &kind);
    values.Take("prompt", &prompt);
    values.Take("max_tokens", &spec.max_tokens);
    values.Take("priority", &spec.priority);
    values.Take("stops_after", &stops_after);
    if (values.Has("deadline_ms")) values.Take("deadline_ms", &spec.deadline.emplace());
    if (values.Has("after")) {
      uint64_t after = 0;
      values.Take("after", &after);
      spec.after = Id(after);
    }
    values.ExpectEmpty();
    spec.prompt = Prompt(static_cast<int32_t>(kind), prompt);
    const Status status = engine_->Admit(std::move(spec), stops_after);
    if (!status.ok()) shown_.push_back("refused: " + status.message());
  }

  // A round plans until `ahead` steps are out, then the oldest is done.
  void Run(int64_t rounds) {
    for (int64_t round = 0; round < rounds; ++round) {
      bool planned = false;
      while (static_cast<int64_t>(engine_->seen().out.size()) < ahead_) {
        if (!engine_->PlanOne(now_ms_)) break;
        ShowPlan();
        planned = true;
      }
      ShowEnds();
      if (engine_->seen().out.empty()) {
        if (!planned) return;
        continue;
      }
      const double ms =
          step_ms_ + row_ms_ * static_cast<double>(engine_->seen().out.front().rows());
      now_ms_ += ms;
      engine_->CommitOne(ms);
      ShowEnds();
    }
    if (rounds == kWhole) throw std::runtime_error("does not come to an end");
  }

  void ShowPlan() { shown_.push_back(engine_->seen().trace.back()); }

  void ShowEnds() {
    const auto& seen = engine_->seen();
    for (; ends_ < seen.finished.size(); ++ends_) {
      const auto id = static_cast<uint64_t>(seen.finished[ends_].sequence);
      shown_.push_back(fmt::format("{} ends: {}, {} tokens", id, Name(seen.finished[ends_].reason),
                                   seen.runs.at(id).answer.size()));
    }
  }

  std::unique_ptr<FakeEngine> engine_;
  int64_t ahead_ = 1;
  double step_ms_ = 1, row_ms_ = 0;
  double now_ms_ = 0;  // the clock of the trace: deadlines are in milliseconds
  size_t ends_ = 0;    // shown
  Lines shown_;
};

Lines ReadLines(const std::string& path) {
  std::ifstream file(path);
  Lines lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

bool IsShown(const std::string& line) { return line.starts_with(">"); }

// The trace with what its commands show now in place of the lines that begin with ">".
Lines Replayed(const Lines& trace) {
  Replay replay;
  Lines lines;
  for (const std::string& line : trace) {
    if (IsShown(line)) continue;
    lines.push_back(line);
    if (line.empty() || line.starts_with("#")) continue;
    for (const std::string& shown : replay.Do(line)) lines.push_back("> " + shown);
  }
  replay.CheckEnd();
  return lines;
}

// Where two traces part, with the lines around.
std::string Difference(const Lines& expected, const Lines& actual) {
  const auto [e, a] = std::mismatch(expected.begin(), expected.end(), actual.begin(), actual.end());
  if (e == expected.end() && a == actual.end()) return "";
  const auto line = e - expected.begin();
  std::string text = fmt::format("line {}:\n", line + 1);
  for (auto it = expected.begin() + std::max<ptrdiff_t>(0, line - 3); it != e; ++it) {
    text += "    " + *it + "\n";
  }
  for (auto it = e; it != expected.end() && it != e + 3; ++it) text += "  - " + *it + "\n";
  for (auto it = a; it != actual.end() && it != a + 3; ++it) text += "  + " + *it + "\n";
  return text + "(if it is meant: KURUMA_UPDATE_TRACES=1 rewrites the file; review its diff)\n";
}

class Traces : public ::testing::TestWithParam<std::string> {};

TEST_P(Traces, PlansAreThoseOfTheFile) {
  const std::string path = std::string(KURUMA_SOURCE_DIR) + "/tests/traces/" + GetParam() + ".txt";
  const Lines expected = ReadLines(path);
  Lines actual;
  try {
    actual = Replayed(expected);
  } catch (const std::exception& error) {
    FAIL() << path << ": " << error.what();
  }
  if (std::getenv("KURUMA_UPDATE_TRACES") != nullptr) {
    std::ofstream file(path);
    for (const std::string& line : actual) file << line << "\n";
    return;
  }
  const std::string difference = Difference(expected, actual);
  EXPECT_TRUE(difference.empty()) << path << ", " << difference;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(KURUMA_SOURCE_DIR) + "/tests/traces")) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, Traces, ::testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

TEST(TraceTool, TellsWhereTracesPart) {
  EXPECT_EQ(Difference({"a", "b"}, {"a", "b"}), "");
  EXPECT_NE(
      Difference({"a", "b", "c"}, {"a", "x", "c"}).find("line 2:\n    a\n  - b\n  - c\n  + x"),
      std::string::npos);
  EXPECT_NE(Difference({"a"}, {"a", "b"}).find("line 2:\n    a\n  + b\n"), std::string::npos);
}

}  // namespace
}  // namespace kuruma::scheduler
