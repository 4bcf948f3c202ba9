// Broken tokenizer.json files: each gives one clear error that names the file and the field.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/byte_tokenizer.h"
#include "text/tokenizer.h"

namespace kuruma::text {
namespace {

using Json = nlohmann::ordered_json;

// The 256 bytes (ids 0..255 in alphabet order), "he" 256, "ll" 257, "hell" 258, added tokens 259
// and 260.
Json SmallTokenizer() {
  Json file = testing::ByteTokenizer();
  Json& vocab = file["model"]["vocab"];
  for (const char* piece : {"he", "ll", "hell"}) vocab[piece] = vocab.size();
  file["model"]["merges"] = Json::array({"h e", Json::array({"l", "l"}), "he ll"});
  file["model"]["dropout"] = nullptr;
  file["truncation"] = nullptr;
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  file["added_tokens"] = Json::array({testing::AddedToken(259, "<end>", {.special = true}),
                                      testing::AddedToken(260, "<end", {.normalized = true})});
  return file;
}

std::vector<int32_t> Encoded(const Json& file, std::string_view text) {
  const auto tokenizer = ParseTokenizer(file.dump(), "t.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  if (!tokenizer.ok()) return {};
  const auto ids = (*tokenizer)->Encode(text);
  EXPECT_TRUE(ids.ok());
  return ids.ok() ? *ids : std::vector<int32_t>();
}

TEST(TokenizerFile, BothMergeSpellingsAreRead) {
  EXPECT_EQ(Encoded(SmallTokenizer(), "hell"), std::vector<int32_t>{258});
}

TEST(TokenizerFile, TokensNotToBeNormalisedAreMatchedFirst) {
  // "<end" is the longer match at no place, but it may only look at what "<end>" left.
  EXPECT_EQ(Encoded(SmallTokenizer(), "<end><end"), (std::vector<int32_t>{259, 260}));
}

TEST(TokenizerFile, NormalizerMayBeNull) {
  Json file = SmallTokenizer();
  file["normalizer"] = nullptr;
  file["post_processor"] = {{"type", "ByteLevel"}};
  EXPECT_EQ(Encoded(file, "he"), std::vector<int32_t>{256});
}

struct Case {
  const char* expected;  // part of the message
  std::function<void(Json&)> damage;
};

void ExpectErrors(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    Json file = SmallTokenizer();
    c.damage(file);
    const auto tokenizer = ParseTokenizer(file.dump(), "dir/t.json");
    ASSERT_FALSE(tokenizer.ok()) << c.expected;
    const std::string message = tokenizer.status().message();
    EXPECT_EQ(tokenizer.status().code(), StatusCode::kDataLoss);
    EXPECT_EQ(message.find("dir/t.json: "), 0u) << message;
    EXPECT_NE(message.find(c.expected), std::string::npos) << message << "\nnot: " << c.expected;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(TokenizerFile, DefectsOfTheModelAreNamed) {
  ExpectErrors({
      {"model: missing", [](Json& f) { f.erase("model"); }},
      {"model: must be an object", [](Json& f) { f["model"] = 3; }},
      {"model.type: must be \"BPE\"", [](Json& f) { f["model"]["type"] = "Unigram"; }},
      {"model.type: missing", [](Json& f) { f["model"].erase("type"); }},
      {"model.dropout: is set", [](Json& f) { f["model"]["dropout"] = 0.1; }},
      {"model.byte_fallback: is set", [](Json& f) { f["model"]["byte_fallback"] = true; }},
      {"model.ignore_merges: is set", [](Json& f) { f["model"]["ignore_merges"] = true; }},
      {"model.vocab: missing", [](Json& f) { f["model"].erase("vocab"); }},
      {"model.vocab: must be an object", [](Json& f) { f["model"]["vocab"] = Json::array(); }},
      {"model.vocab[\"he\"]: must be an integer", [](Json& f) { f["model"]["vocab"]["he"] = "x"; }},
      {"id 300 of \"he\" is out of range", [](Json& f) { f["model"]["vocab"]["he"] = 300; }},
      {"id -1 of \"he\" is out of range", [](Json& f) { f["model"]["vocab"]["he"] = -1; }},
      {"id 257 is given to \"he\" and \"ll\"", [](Json& f) { f["model"]["vocab"]["he"] = 257; }},
      {"a token must not be empty", [](Json& f) { f["model"]["vocab"][""] = 261; }},
      {"has no token for byte 97",
       [](Json& f) {
         f["model"]["vocab"].erase("a");
         f["model"]["vocab"]["zz"] = 64;
       }},
      {"model.merges: missing", [](Json& f) { f["model"].erase("merges"); }},
      {"model.merges[0]: \"xx\" is not in model.vocab",
       [](Json& f) { f["model"]["merges"][0] = "x x"; }},
      {"model.merges[0]: \"qq\" is not", [](Json& f) { f["model"]["merges"][0] = "qq h"; }},
      {"model.merges[0]: \"he\" must be two pieces",
       [](Json& f) { f["model"]["merges"][0] = "he"; }},
      {"model.merges[0]: \"h  e\" must be two", [](Json& f) { f["model"]["merges"][0] = "h  e"; }},
      {"model.merges[0]: must be a string or", [](Json& f) { f["model"]["merges"][0] = 1; }},
      {"model.merges[0]: must be a string or",
       [](Json& f) { f["model"]["merges"][0] = Json::array({"h"}); }},
      {"model.merges[0][1]: must be a string",
       [](Json& f) {
         f["model"]["merges"][0] = Json::array({"h", 1});
       }},
      {"model.merges[3]: repeats model.merges[0]",
       [](Json& f) { f["model"]["merges"].push_back("h e"); }},
  });
}

TEST(TokenizerFile, DefectsOfAddedTokensAreNamed) {
  ExpectErrors({
      {"added_tokens: missing", [](Json& f) { f.erase("added_tokens"); }},
      {"added_tokens[0]: must be an object", [](Json& f) { f["added_tokens"][0] = "x"; }},
      {"added_tokens[0].content: missing", [](Json& f) { f["added_tokens"][0].erase("content"); }},
      {"added_tokens[0].special: must be true or false",
       [](Json& f) { f["added_tokens"][0]["special"] = 1; }},
      {"added_tokens[0].lstrip: is set", [](Json& f) { f["added_tokens"][0]["lstrip"] = true; }},
      {"id 260 is given to", [](Json& f) { f["added_tokens"][0]["id"] = 260; }},
      {"id 400 of \"<end>\" is out of range", [](Json& f) { f["added_tokens"][0]["id"] = 400; }},
      {"has id 259 here and 256 in model.vocab",
       [](Json& f) { f["added_tokens"][0]["content"] = "he"; }},
  });
}

TEST(TokenizerFile, OtherPipelinesAreRefused) {
  ExpectErrors({
      {"normalizer.type: must be null", [](Json& f) { f["normalizer"]["type"] = "NFC"; }},
      {"normalizer.normalizers: must be empty",
       [](Json& f) {
         f["normalizer"]["normalizers"].push_back({{"type", "NFC"}});
       }},
      {"pre_tokenizer: missing", [](Json& f) { f.erase("pre_tokenizer"); }},
      {"pre_tokenizer.type: must be \"Sequence\"",
       [](Json& f) { f["pre_tokenizer"]["type"] = "Metaspace"; }},
      {"must have 4 steps", [](Json& f) { f["pre_tokenizer"]["pretokenizers"].erase(0); }},
      {"pretokenizers[1].pattern.Regex: is not the regular expression",
       [](Json& f) { f["pre_tokenizer"]["pretokenizers"][1]["pattern"]["Regex"] = "\\w+"; }},
      {"pretokenizers[0].behavior: must be",
       [](Json& f) { f["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; }},
      {"pretokenizers[3]: unknown step \"Digits\"",
       [](Json& f) { f["pre_tokenizer"]["pretokenizers"][3]["type"] = "Digits"; }},
      {"pretokenizers[3].use_regex: must be false",
       [](Json& f) { f["pre_tokenizer"]["pretokenizers"][3]["use_regex"] = true; }},
      {"decoder: must be an object", [](Json& f) { f["decoder"] = nullptr; }},
      {"decoder.type: must be", [](Json& f) { f["decoder"]["type"] = "Metaspace"; }},
      {"post_processor.type: must be",
       [](Json& f) {
         f["post_processor"] = {{"type", "TemplateProcessing"}};
       }},
      {"top level: must be an object", [](Json& f) { f = Json::array(); }},
  });
}

TEST(TokenizerFile, DamagedJsonAndMissingFilesAreNamed) {
  const std::string json = SmallTokenizer().dump();
  const auto cut = ParseTokenizer(json.substr(0, json.size() / 2), "t.json");
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.status().message().find("t.json: not valid JSON"), 0u) << cut.status().message();
  EXPECT_FALSE(ParseTokenizer("", "t.json").ok());
  // The same key twice, which a JSON writer does not produce.
  std::string twice = json;
  twice.replace(twice.find("\"ll\":257"), 8, "\"he\":257");
  const auto repeated = ParseTokenizer(twice, "t.json");
  ASSERT_FALSE(repeated.ok());
  EXPECT_NE(repeated.status().message().find("\"he\" is there twice"), std::string::npos);
  for (const char* path : {"/no/such/tokenizer.json", "/"}) {
    const auto missing = Tokenizer::Load(path);
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
    EXPECT_EQ(missing.status().message().find(path), 0u);
  }
}

}  // namespace
}  // namespace kuruma::text
