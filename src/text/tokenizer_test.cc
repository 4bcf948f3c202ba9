#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "text/golden_test_util.h"
#include "text/utf8.h"

namespace kuruma::text {
namespace {

using Ids = std::vector<int32_t>;

Ids MustEncode(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.Encode(text);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : Ids();
}

std::string MustDecode(const Tokenizer& tokenizer, const Ids& ids, bool skip_special = false) {
  auto text = tokenizer.Decode(ids, skip_special);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : "";
}

struct Streamed {
  std::vector<size_t> released;  // bytes after each id
  std::string text;
  std::string tail;
};

Streamed StreamAll(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder decoder(tokenizer);
  Streamed streamed;
  for (const int32_t id : ids) {
    const std::string piece = decoder.Push(id);
    EXPECT_FALSE(FindInvalidUtf8(piece));
    streamed.released.push_back(piece.size());
    streamed.text += piece;
  }
  streamed.tail = decoder.Finish();
  streamed.text += streamed.tail;
  return streamed;
}

TEST(Tokenizer, AgreesWithEveryReferenceRow) {
  const Tokenizer* tokenizer = GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  const auto rows = ReadGoldenRows("tokenizer_cases.jsonl");
  EXPECT_EQ(rows.size(), 1765u);
  for (const auto& row : rows) {
    SCOPED_TRACE(row["id"].get<std::string>());
    const auto ids = row["ids"].get<Ids>();
    if (row.contains("text")) {
      const auto text = row["text"].get<std::string>();
      EXPECT_EQ(MustEncode(*tokenizer, text), ids);
      const auto plain = tokenizer->EncodePlain(text);
      ASSERT_TRUE(plain.ok());
      EXPECT_EQ(*plain, row.value("plain_ids", ids));
    }
    const std::string decoded = row.value("decoded", row.value("text", ""));
    EXPECT_EQ(MustDecode(*tokenizer, ids), decoded);
    EXPECT_EQ(MustDecode(*tokenizer, ids, true), row.value("decoded_skip_special", decoded));
    const Streamed streamed = StreamAll(*tokenizer, ids);
    EXPECT_EQ(streamed.released, row["stream"].get<std::vector<size_t>>());
    EXPECT_EQ(streamed.tail, row.value("stream_tail", ""));
    EXPECT_EQ(streamed.text, decoded);
  }
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer* tokenizer = GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 129280);
  EXPECT_EQ(tokenizer->AddedTokenId("<｜User｜>"), 128803);
  EXPECT_EQ(tokenizer->AddedTokenId("<｜deepseek_image｜>"), 129264);
  EXPECT_FALSE(tokenizer->AddedTokenId("hello").has_value());
  EXPECT_TRUE(tokenizer->Token(0).special);
  EXPECT_FALSE(tokenizer->Token(128803).special);
  EXPECT_TRUE(tokenizer->Token(128803).added);
  EXPECT_EQ(tokenizer->TokenBytes(223), " ");
  EXPECT_EQ(tokenizer->Token(223).text, "Ġ");
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const Tokenizer* tokenizer = GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  const std::pair<std::string, std::string> cases[] = {{"ab\xFFz", "byte 2"},
                                                       {"\xE4\xBD", "byte 0"},
                                                       {"é\xED\xA0\x80", "byte 2"},
                                                       {"\xC0\x80", "byte 0"}};
  for (const auto& [text, where] : cases) {
    for (const auto& result : {tokenizer->Encode(text), tokenizer->EncodePlain(text)}) {
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
      EXPECT_NE(result.status().message().find(where), std::string::npos)
          << result.status().message();
    }
  }
}

TEST(Tokenizer, RefusesIdsOutOfRange) {
  const Tokenizer* tokenizer = GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  for (const int32_t id : {-1, 129280}) {
    EXPECT_EQ(tokenizer->Decode(Ids{5, id}).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(StreamDecoder(*tokenizer).Push(id), "");
  }
}

// A megabyte of one character takes quadratic time in a naive merge loop: minutes, not moments.
TEST(Tokenizer, LongRunsStayNearLinear) {
  const Tokenizer* tokenizer = GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  for (const std::string unit : {"a", " ", "\n", "你", "7", "😀", "=", "\xC2\x85", "\u3040",
                                 "x \t\n", "<", "<｜", "\u0301", "ab", "½"}) {
    std::string text;
    while (text.size() < (size_t{1} << 20)) text += unit;
    EXPECT_EQ(MustDecode(*tokenizer, MustEncode(*tokenizer, text)), text) << unit;
  }
}

std::string RandomText(std::mt19937& random) {
  static const std::vector<std::string> fragments = {
      "hello",      " world", "don't",    "  ",           "\n",       "\r\n",
      "\t",         "你好",   "，",       "ア・イ",       "ー",       "1234567",
      "½",          "é",      "e\u0301",  "한글",         "😀",        "👩‍👩‍👧",
      "<｜User｜>", "<｜",    "｜DSML｜", "<think>",      "</think>", "\u00A0",
      "\u2028",     "\u0085", "\uFEFF",   "\u200B",       "#include", "_x",
      "::",         "\u0001", "ا",        "١٢",           "<|EOT|>",  "<｜deepseek_image｜>",
      "\u3040",     "𝔘",      "\uFFFD",   "int main() {}"};
  std::string text;
  const size_t count = random() % 12;
  for (size_t i = 0; i < count; ++i) {
    if (random() % 6 == 0) {
      uint32_t code = random() % 0x110000;
      if (code >= 0xD800 && code < 0xE000) code = 0x41;
      AppendCodePoint(code, &text);
    } else {
      text += fragments[random() % fragments.size()];
    }
  }
  return text;
}

TEST(Tokenizer, DecodeUndoesEncode) {
  const Tokenizer* tokenizer = GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = RandomText(random);
    EXPECT_EQ(MustDecode(*tokenizer, MustEncode(*tokenizer, text)), text);
    const auto plain = tokenizer->EncodePlain(text);
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(MustDecode(*tokenizer, *plain), text);
    for (const int32_t id : *plain) EXPECT_FALSE(tokenizer->Token(id).added) << text;
  }
}

TEST(Tokenizer, StreamedPiecesAddUpToDecode) {
  const Tokenizer* tokenizer = GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    Ids ids(random() % 20);
    // Single-byte tokens come first in the vocabulary: half of the ids break characters.
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(random() % (random() % 2 == 0 ? 300 : 129280));
    }
    EXPECT_EQ(StreamAll(*tokenizer, ids).text, MustDecode(*tokenizer, ids));
  }
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const Tokenizer* tokenizer = GoldenTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 random(3);
  std::vector<std::string> texts(200);
  for (std::string& text : texts) text = RandomText(random);
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(MustEncode(*tokenizer, text));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (size_t j = 0; j < texts.size(); ++j) {
        EXPECT_EQ(MustEncode(*tokenizer, texts[j]), expected[j]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Utf8, BrokenSequencesAreReplacedByMaximalSubparts) {
  const std::pair<std::string, std::string> cases[] = {
      {"a\x80z", "a\uFFFDz"},
      {"\xF0\x9F\x98z", "\uFFFDz"},
      {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xC3", "\uFFFD"},
      {"\xE4\xBD\xE4\xBD\xA0", "\uFFFD你"},
  };
  for (const auto& [bytes, expected] : cases) {
    std::string text;
    EXPECT_EQ(AppendLossyUtf8(bytes, true, &text), bytes.size());
    EXPECT_EQ(text, expected);
  }
}

}  // namespace
}  // namespace kuruma::text
