// Damaged checkpoints and configurations: one clear message naming file and tensor or field, never
// a crash, never a model that loads anyway.
#include "model/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "model/config.h"
#include "model/safetensors.h"
#include "model/weights.h"
#include "tests/support/golden.h"

namespace kuruma::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A writable copy of the nano checkpoint that goes away with the test.
class Scratch {
 public:
  Scratch() {
    char pattern[] = "/tmp/kuruma_checkpoint_XXXXXX";
    dir_ = mkdtemp(pattern);
    fs::copy(testing::GoldenPath("nano/checkpoint"), dir_, fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(dir_)) {
      fs::permissions(entry.path(), fs::perms::owner_all, fs::perm_options::add);
    }
  }
  ~Scratch() { fs::remove_all(dir_); }

  std::string path(const std::string& file) const { return dir_ + "/" + file; }
  const std::string& dir() const { return dir_; }

  std::string Read(const std::string& file) const {
    std::ifstream in(path(file), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Write(const std::string& file, const std::string& bytes) const {
    std::ofstream(path(file), std::ios::binary) << bytes;
  }

  // Rewrites the header of a shard; tensor data stays as it is.
  void EditHeader(const std::string& shard, const std::function<void(Json&)>& edit) const {
    const std::string bytes = Read(shard);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    Json header = Json::parse(bytes.substr(8, length));
    edit(header);
    const std::string text = header.dump();
    const uint64_t size = text.size();
    Write(shard,
          std::string(reinterpret_cast<const char*>(&size), 8) + text + bytes.substr(8 + length));
  }

  void EditJson(const std::string& file, const std::function<void(Json&)>& edit) const {
    Json json = Json::parse(Read(file));
    edit(json);
    Write(file, json.dump());
  }

  // What opening the checkpoint for use says.
  Status Load() const {
    KURUMA_ASSIGN_OR_RETURN(const ModelConfig config, LoadConfig(dir_));
    KURUMA_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(dir_, ReadScope::kWhole));
    return LoadWeights(*checkpoint, config).status();
  }

 private:
  std::string dir_;
};

constexpr const char* kShard = "model-00001-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// The message must be one line and hold every given part.
void ExpectRefused(const Status& status, const std::vector<std::string>& parts) {
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  for (const std::string& part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "\"" << part << "\" is not in: " << status.message();
  }
}

TEST(BadCheckpoint, TheUntouchedCopyLoads) {
  const Scratch scratch;
  const Status status = scratch.Load();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(BadCheckpoint, TruncatedShard) {
  const Scratch scratch;
  const std::string bytes = scratch.Read(kShard);
  scratch.Write(kShard, bytes.substr(0, bytes.size() - 100));
  ExpectRefused(scratch.Load(), {kShard, "truncated"});
  scratch.Write(kShard, bytes + "x");
  ExpectRefused(scratch.Load(), {kShard});
  for (size_t size : {0, 7, 8, 100}) {
    scratch.Write(kShard, bytes.substr(0, size));
    ExpectRefused(scratch.Load(), {kShard});
  }
}

TEST(BadCheckpoint, MissingFiles) {
  const Scratch scratch;
  fs::remove(scratch.path(kShard));
  ExpectRefused(scratch.Load(), {kShard});
  fs::remove(scratch.path(kIndex));
  ExpectRefused(scratch.Load(), {"model.safetensors.index.json", "model.safetensors"});
  fs::remove(scratch.path("config.json"));
  ExpectRefused(scratch.Load(), {"config.json"});
  ExpectRefused(Checkpoint::Open("/nonexistent/dir", ReadScope::kWhole).status(),
                {"/nonexistent/dir"});
}

TEST(BadCheckpoint, MissingTensor) {
  const Scratch scratch;
  scratch.EditJson(kIndex, [](Json& j) { j["weight_map"].erase("layers.0.attn.wq_a.scale"); });
  ExpectRefused(scratch.Load(), {"layers.0.attn.wq_a.scale", "missing"});
  scratch.EditJson(kIndex, [](Json& j) { j["weight_map"]["layers.0.attn.ghost"] = kShard; });
  ExpectRefused(scratch.Load(), {kShard, "layers.0.attn.ghost"});
}

TEST(BadCheckpoint, BadIndex) {
  const Scratch scratch;
  for (const std::string text :
       {"", "{", "[]", "{\"weight_map\":[]}", "{\"weight_map\":{}}", "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":\"../../etc/passwd\"}}"}) {
    scratch.Write(kIndex, text);
    ExpectRefused(scratch.Load(), {kIndex});
  }
}

TEST(BadCheckpoint, WrongDtypeOrShape) {
  const std::string name = "layers.0.attn_norm.weight";
  {
    const Scratch scratch;
    scratch.EditHeader(kShard, [&](Json& h) { h[name]["dtype"] = "F16"; });
    ExpectRefused(scratch.Load(), {kShard, name, "F16", "BF16"});
  }
  {
    const Scratch scratch;
    scratch.EditHeader(kShard, [&](Json& h) { h[name]["shape"] = {32, 2}; });
    ExpectRefused(scratch.Load(), {kShard, name, "[32, 2]", "[64]"});
  }
  {
    const Scratch scratch;
    scratch.EditHeader(kShard, [&](Json& h) { h[name]["shape"] = {65}; });
    ExpectRefused(scratch.Load(), {kShard, name, "bytes"});
  }
  {
    const Scratch scratch;
    scratch.EditHeader(kShard, [&](Json& h) { h[name]["dtype"] = "Q4_K"; });
    ExpectRefused(scratch.Load(), {kShard, name, "Q4_K"});
  }
}

TEST(BadCheckpoint, HeaderLongerThanTheFile) {
  const Scratch scratch;
  std::string bytes = scratch.Read(kShard);
  for (uint64_t length : {uint64_t{1} << 62, ~uint64_t{0}, uint64_t{bytes.size()}}) {
    std::memcpy(bytes.data(), &length, 8);
    scratch.Write(kShard, bytes);
    ExpectRefused(scratch.Load(), {kShard, "header"});
  }
}

TEST(BadCheckpoint, OffsetsThatOverlapShiftOrOverflow) {
  const std::string name = "layers.0.attn.attn_sink";  // F32
  const auto shifted = [&](int64_t by) {
    const Scratch scratch;
    scratch.EditHeader(kShard, [&](Json& h) {
      auto& offsets = h[name]["data_offsets"];
      offsets = {offsets[0].get<int64_t>() + by, offsets[1].get<int64_t>() + by};
    });
    return scratch.Load();
  };
  for (int64_t by : {1, 4, -1, -4, 1 << 30}) ExpectRefused(shifted(by), {kShard, "tensor"});
  const auto replaced = [&](const Json& offsets) {
    const Scratch scratch;
    scratch.EditHeader(kShard, [&](Json& h) { h[name]["data_offsets"] = offsets; });
    return scratch.Load();
  };
  for (const char* text : {"[-1, 3]", "[8, 4]", "[0]", "\"0\"", "[0.5, 1.5]", "null",
                           "[9223372036854775807, 9223372036854775807]",
                           "[18446744073709551615, 18446744073709551615]"}) {
    ExpectRefused(replaced(Json::parse(text)), {kShard, name});
  }
  const Scratch huge;
  huge.EditHeader(kShard, [&](Json& h) {
    h[name]["shape"] = {int64_t{1} << 40, int64_t{1} << 40, 4};
  });
  ExpectRefused(huge.Load(), {kShard, name});
}

TEST(BadCheckpoint, OtherBlockSize) {
  const Scratch scratch;
  scratch.EditJson("config.json", [](Json& j) {
    j["quantization_config"]["weight_block_size"] = {128, 128};
  });
  ExpectRefused(scratch.Load(), {kShard, ".scale", "calls for"});
  scratch.EditJson("config.json", [](Json& j) {
    j["quantization_config"]["weight_block_size"] = {32, 16};
  });
  ExpectRefused(scratch.Load(), {"config.json", "weight_block_size"});
}

TEST(Checkpoint, InspectingNeedsOnlyHeaders) {
  const Scratch scratch;
  for (const char* shard : {kShard, "model-00002-of-00002.safetensors"}) {
    const std::string bytes = scratch.Read(shard);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    scratch.Write(shard, bytes.substr(0, 8 + length));
  }
  ExpectRefused(scratch.Load(), {"truncated"});
  auto checkpoint = Checkpoint::Open(scratch.dir(), ReadScope::kHeadersOnly);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto config = LoadConfig(scratch.dir());
  ASSERT_TRUE(config.ok());
  const auto weights = LoadWeights(**checkpoint, *config);
  EXPECT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->embed.data, nullptr);
}

TEST(Checkpoint, TensorsNeedNotBeAligned) {
  const Scratch scratch;
  const auto checkpoint = Checkpoint::Open(scratch.dir(), ReadScope::kWhole);
  ASSERT_TRUE(checkpoint.ok());
  int unaligned = 0;
  for (const std::string& name : (*checkpoint)->Names()) {
    const TensorInfo* info = (*checkpoint)->Find(name);
    unaligned += info->begin % DTypeBytes(info->dtype) != 0;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(info->data) % DTypeBytes(info->dtype), 0u) << name;
  }
  EXPECT_GT(unaligned, 0) << "the checkpoint no longer covers this case";
}

TEST(Checkpoint, WrittenFilesReadBack) {
  const Scratch scratch;
  const std::vector<float> logits{1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> bytes{7};
  const std::string path = scratch.path("out.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, {{"a \"quoted\" name", DType::kU8, {1}, bytes.data()},
                                      {"logits", DType::kF32, {2, 3}, logits.data()},
                                      {"empty", DType::kF32, {0, 3}, logits.data()}})
                  .ok());
  const auto file = SafetensorsFile::Open(path, ReadScope::kWhole);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const TensorInfo& info = (*file)->header().tensors.at("logits");
  EXPECT_EQ(info.Describe(), "F32 [2, 3]");
  EXPECT_TRUE(std::equal(logits.begin(), logits.end(), reinterpret_cast<const float*>(info.data)));
  EXPECT_FALSE(WriteSafetensors("/nonexistent/x", {}).ok());
}

// ------------------------------------------------------------------------------------ config.json

struct ConfigCase {
  std::string field;                // named in the message
  std::function<void(Json&)> edit;  // receives the whole document
};

std::vector<ConfigCase> BadConfigs() {
  const auto text = [](const std::string& field, const Json& value) {
    return ConfigCase{field, [=](Json& j) { j["text_config"][field] = value; }};
  };
  return {
      {"model_type", [](Json& j) { j["model_type"] = "deepseek_v3"; }},
      {"text_config", [](Json& j) { j.erase("text_config"); }},
      {"text_config", [](Json& j) { j["text_config"] = 3; }},
      {"quantization_config", [](Json& j) { j.erase("quantization_config"); }},
      {"expert_dtype", [](Json& j) { j["quantization_config"]["expert_dtype"] = "int4"; }},
      {"scale_fmt", [](Json& j) { j["quantization_config"]["scale_fmt"] = "fp32"; }},
      {"eos_token_id", [](Json& j) { j["eos_token_id"] = 256; }},
      text("scoring_func", "softmax"),
      text("hidden_act", "gelu"),
      text("num_key_value_heads", 2),
      text("attention_dropout", 0.1),
      text("tie_word_embeddings", true),
      text("gate_temp", 0.5),
      text("hidden_size", 60),
      text("hidden_size", 0),
      text("hidden_size", -64),
      text("hidden_size", 64.5),
      text("hidden_size", "64"),
      text("hidden_size", 1e30),
      text("hidden_size", uint64_t{1} << 63),
      text("vocab_size", nullptr),
      text("qk_rope_head_dim", 15),
      text("qk_rope_head_dim", 34),
      text("o_groups", 3),
      text("num_experts_per_tok", 9),
      text("compress_ratios", {0, 0, 2, 2, 2, 1, 1, 1}),
      text("compress_ratios", {0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0}),
      text("compress_ratios", {0, 0, 3, 3, 3, 1, 1, 1, 1, 0, 0}),
      text("kv_source_layer_ids", {4, 2, 5}),
      text("kv_source_layer_ids", {2, 4, 9}),
      text("kv_source_layer_ids", {0, 2, 4, 5}),
      text("kv_source_layer_ids", Json::array()),
      text("index_source_layer_ids", {2, 5, 7}),
      text("candidate_source_layer_id", 6),
      text("candidate_source_layer_id", 2),
      text("candidate_topk_blocks", 2),
      text("engram_num_embeddings", {434, 607}),
      text("engram_num_embeddings", {434}),
      text("engram_layer_ids", {4, 1}),
      text("engram_head_dim", 16),
      text("engram_pad_token_id", 256),
      text("dspark_target_layer_ids", {9}),
      text("dspark_noise_token_id", 1000),
      text("dspark_num_experts_per_tok", 5),
      {"rope_scaling", [](Json& j) { j["text_config"]["rope_scaling"]["rope_type"] = "linear"; }},
      {"rope_scaling", [](Json& j) { j["text_config"]["rope_scaling"].erase("factor"); }},
  };
}

TEST(BadConfig, EveryFieldIsCheckedAndNamed) {
  const Json good = testing::ReadJson(testing::GoldenPath("nano/checkpoint/config.json"));
  ASSERT_TRUE(ParseConfig(good.dump(), "config.json").ok());
  std::vector<ConfigCase> cases = BadConfigs();
  for (const auto& [field, value] : good["text_config"].items()) {
    if (field == "model_type" || field == "attention_bias" || field == "attention_dropout" ||
        field == "tie_word_embeddings" || field == "rope_scaling" ||
        field == "candidate_source_layer_id" || field == "engram_layer_ids" ||
        field == "num_nextn_predict_layers") {
      continue;  // optional
    }
    cases.push_back({field, [name = field](Json& j) { j["text_config"].erase(name); }});
  }
  for (const ConfigCase& c : cases) {
    Json bad = good;
    c.edit(bad);
    const auto config = ParseConfig(bad.dump(), "config.json");
    const bool named = !config.ok() && config.status().message().find(c.field) != std::string::npos;
    const bool source_rule =
        !config.ok() && config.status().message().find("source_layer_ids") != std::string::npos;
    EXPECT_TRUE(named || (source_rule && c.field.find("source") != std::string::npos))
        << c.field << ": " << (config.ok() ? "accepted" : config.status().message());
  }
}

TEST(BadConfig, NotJson) {
  for (const std::string text : {"", "{", "[]", "null", "\xff\xfe", "{\"model_type\":}"}) {
    ExpectRefused(ParseConfig(text, "config.json").status(), {"config.json"});
  }
  EXPECT_FALSE(ParseConfig(std::string(200000, '['), "config.json").ok());
}

TEST(Config, RolesOfTheReleasedConfiguration) {
  const auto config = LoadConfig(testing::GoldenPath("mini/checkpoint"));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->decoder_begin(), 8);
  EXPECT_EQ(config->KvSource(7), 5);
  EXPECT_EQ(config->IndexSource(11), 10);
  EXPECT_EQ(config->KvSource(13), 8);
  EXPECT_EQ(config->ratios.size(), 17u);
}

// One test fixture of the field lists no draft entries; they count as 0.
TEST(Config, DraftEntriesOfCompressRatiosMayBeMissing) {
  Json json = testing::ReadJson(testing::GoldenPath("nano/checkpoint/config.json"));
  auto& ratios = json["text_config"]["compress_ratios"];
  ratios.erase(ratios.end() - 2, ratios.end());
  const auto config = ParseConfig(json.dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->ratios.size(), 11u);
}

}  // namespace
}  // namespace kuruma::model
