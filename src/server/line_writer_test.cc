#include "server/line_writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace kuruma::server {
namespace {

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
  }
  // All lines up to the end of the writing side.
  std::vector<std::string> ReadLines() const {
    std::string text;
    char buffer[65536];
    for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    std::vector<std::string> lines;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      lines.push_back(text.substr(at, end - at));
      if (end == std::string::npos) break;
      at = end + 1;
    }
    return lines;
  }
  void EndWriting() { close(std::exchange(ends[1], -1)); }

  int ends[2];
};

TEST(LineWriter, WritesEveryLineInOrder) {
  Pipe pipe;
  std::vector<std::string> lines;
  std::thread reader([&] { lines = pipe.ReadLines(); });
  constexpr int kLines = 10'000;
  {
    LineWriter writer(pipe.ends[1]);
    for (int i = 0; i < kLines; ++i) writer.Add(fmt::format("line {} of many", i));
  }
  pipe.EndWriting();
  reader.join();
  ASSERT_EQ(lines.size(), static_cast<size_t>(kLines));
  for (int i = 0; i < kLines; ++i) {
    ASSERT_EQ(lines[static_cast<size_t>(i)], fmt::format("line {} of many", i));
  }
}

TEST(LineWriter, NeverWaitsForAReader) {
  Pipe pipe;
  auto writer = std::make_unique<LineWriter>(pipe.ends[1]);
  const std::string line(1000, 'x');
  constexpr size_t kLines = 3 * LineWriter::kMostBytes / 1000;
  for (size_t i = 0; i < kLines; ++i) writer->Add(line);  // nobody reads yet
  std::vector<std::string> lines;
  std::thread reader([&] { lines = pipe.ReadLines(); });
  // A first one is dropped as long as the reader has not made room.
  while (true) {
    writer->Add("end");
    std::this_thread::yield();
    if (writer->dropped() == 0) break;
  }
  writer = nullptr;
  pipe.EndWriting();
  reader.join();
  EXPECT_LT(lines.size(), kLines);
  ASSERT_GE(lines.size(), 2U);
  EXPECT_EQ(lines.back(), "end");
  EXPECT_TRUE(lines[lines.size() - 2].starts_with("{\"dropped_lines\":"));
}

TEST(LineWriter, EndsWithoutAReader) {
  Pipe pipe;
  LineWriter writer(pipe.ends[1]);
  for (int i = 0; i < 1000; ++i) writer.Add(std::string(1000, 'x'));
}

}  // namespace
}  // namespace kuruma::server
