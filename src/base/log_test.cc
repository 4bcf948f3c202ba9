#include "base/log.h"

#include <gtest/gtest.h>

namespace kuruma {
namespace {

TEST(Log, LevelsDecideWhatIsWritten) {
  ASSERT_TRUE(SetLogLevel("error").ok());
  EXPECT_FALSE(LogEnabled(LogLevel::kWarn));
  EXPECT_TRUE(LogEnabled(LogLevel::kError));
  ASSERT_TRUE(SetLogLevel("debug").ok());
  testing::internal::CaptureStderr();
  LogDebug("answer {}", 42);
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("debug answer 42\n"), std::string::npos) << line;
  ASSERT_TRUE(SetLogLevel("warn").ok());
  EXPECT_EQ(SetLogLevel("loud").code(), StatusCode::kInvalidArgument);
}

TEST(Log, AMessageStaysOneLine) {
  testing::internal::CaptureStderr();
  LogWarn("a\nb\x1b[2J{}", "{}");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("a\\nb\\x1b[2J{}\n"), std::string::npos) << line;
}

TEST(Log, EscapesControlsAndNothingElse) {
  EXPECT_EQ(EscapeControls("x\t\r\x7f\x01"), "x\\t\\x0d\\x7f\\x01");
  EXPECT_EQ(EscapeControls("\xC2\x9B"
                           "2J\xC2\xA0\xC2"),
            "\\u009b2J\xC2\xA0\xC2");
  EXPECT_EQ(EscapeControls("Grüße \"ok\" \\"), "Grüße \"ok\" \\");
}

}  // namespace
}  // namespace kuruma
