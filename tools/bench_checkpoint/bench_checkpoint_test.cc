#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench_checkpoint/config_json.h"
#include "bench_checkpoint/fill.h"
#include "bench_checkpoint/inventory.h"
#include "bench_checkpoint/shape.h"
#include "bench_checkpoint/summary.h"
#include "bench_checkpoint/write.h"
#include "kernels/formats.h"
#include "model/config.h"

namespace kuruma::bench_checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Shape Make(const std::string& preset, const Changes& changes = {}) {
  Result<Shape> shape = MakeShape(preset, changes);
  EXPECT_TRUE(shape.ok()) << shape.status().message();
  return shape.value();
}

// A directory that is removed with its owner.
class Scratch {
 public:
  Scratch() : path_(fs::path(testing::TempDir()) / ("kuruma_" + std::to_string(getpid()))) {
    fs::remove_all(path_);
  }
  ~Scratch() { fs::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string Read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// File name -> contents.
std::map<std::string, std::string> ReadAll(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    files[entry.path().filename()] = Read(entry.path());
  }
  return files;
}

json ReadHeader(const fs::path& shard) {
  const std::string text = Read(shard);
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= uint64_t{static_cast<uint8_t>(text[i])} << (8 * i);
  EXPECT_EQ(length % 8, 0u);
  return json::parse(text.substr(8, length));
}

const Tensor& Find(const std::vector<Unit>& units, const std::string& name) {
  for (const Unit& unit : units) {
    for (const Tensor& tensor : unit) {
      if (tensor.name == name) return tensor;
    }
  }
  ADD_FAILURE() << name << " is missing";
  return units[0][0];
}

TEST(Inventory, ReleasedShapesAddUpToThePublishedTotals) {
  const std::vector<Unit> units = MakeInventory(Make("released"));
  EXPECT_EQ(units.size(), 48u);
  const Totals totals = Count(units);
  EXPECT_EQ(totals.tensors, 96085);
  EXPECT_EQ(totals.bytes, 510286023000);
  int64_t draft = 0, vision = 0;
  std::set<std::string> names;
  for (const Unit& unit : units) {
    for (const Tensor& tensor : unit) {
      names.insert(tensor.name);
      draft += tensor.name.starts_with("mtp.");
      vision += tensor.group == Group::kVision;
    }
  }
  EXPECT_EQ(names.size(), 96085u);
  EXPECT_EQ(draft, 2401);
  EXPECT_EQ(vision, 266);
}

TEST(Inventory, BenchReadsWhatTheBenchmarksDivideBy) {
  const json summary = json::parse(SummaryJson(Make("bench")));
  EXPECT_NEAR(summary["bytes"].get<double>(), 1.30e9, 0.01e9);
  EXPECT_NEAR(summary["read_bytes_per_token"].get<double>(), 280.6e6, 0.5e6);
  EXPECT_NEAR(summary["multiply_adds_per_token"].get<double>(), 300e6, 2e6);
}

TEST(Shape, ConfigIsReadBackByTheModel) {
  std::vector<std::pair<std::string, Changes>> cases;
  for (const std::string& preset : PresetNames()) {
    cases.push_back({preset, {}});
    cases.push_back({preset, {.draft = false}});
  }
  for (int layers : {6, 7, 12, 25, 61}) cases.push_back({"demo", {.layers = layers}});
  cases.push_back({"nano", {.hidden = 96, .vocab = 1000}});
  for (const auto& [preset, changes] : cases) {
    const Shape shape = Make(preset, changes);
    const Result<model::ModelConfig> read = model::ParseConfig(ConfigJson(shape), preset);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value().ratios, shape.config.ratios);
    EXPECT_EQ(read.value().index_sources, shape.config.index_sources);
    EXPECT_EQ(read.value().engram.table_rows, shape.config.engram.table_rows);
    EXPECT_EQ(read.value().draft.stages, shape.config.draft.stages);
  }
}

TEST(Shape, SizeChoosesTheNumberOfExperts) {
  const Shape shape = Make("bench", {.size_gb = 3.0});
  EXPECT_NEAR(static_cast<double>(Count(MakeInventory(shape)).bytes), 3.0e9, 0.02e9);
  EXPECT_FALSE(MakeShape("bench", {.size_gb = 0.1}).ok());
}

TEST(Shape, ImpossibleValuesAreAnsweredWithTheRule) {
  EXPECT_NE(MakeShape("nano", {.hidden = 65}).status().message().find("multiple of 32"),
            std::string::npos);
  EXPECT_FALSE(MakeShape("nano", {.layers = 3}).ok());
  EXPECT_FALSE(MakeShape("nano", {.experts = 1}).ok());
  EXPECT_FALSE(MakeShape("nano", {.vocab = 3}).ok());
  EXPECT_FALSE(MakeShape("huge", {}).ok());
}

TEST(Fill, ValuesDoNotDependOnTheRangesTheyAreMadeIn) {
  const std::vector<Unit> units = MakeInventory(Make("nano"));
  Filler filler(3);
  for (const Unit& unit : units) {
    for (const Tensor& tensor : unit) {
      const int64_t all = tensor.elements(), width = tensor.bytes() / all, cut = all / 8 * 4;
      std::vector<std::byte> whole(tensor.bytes()), parts(tensor.bytes());
      filler.Fill(tensor, 0, all, whole);
      filler.Fill(tensor, cut, all - cut, std::span(parts).subspan(cut * width));
      filler.Fill(tensor, 0, cut, parts);
      EXPECT_EQ(whole, parts) << tensor.name;
    }
  }
}

TEST(Fill, MatricesKeepUnitVariance) {
  const std::vector<Unit> units = MakeInventory(Make("bench"));
  Filler filler(1);
  for (const auto& [name, gain] :
       {std::pair("layers.0.attn.wq_b", 1.5), std::pair("layers.0.attn.wkv", 1.0),
        std::pair("layers.3.ffn.experts.5.w1", 1.5),
        std::pair("layers.3.ffn.experts.5.w2", 0.06)}) {
    const Tensor& weight = Find(units, name + std::string(".weight"));
    const Tensor& scale = Find(units, name + std::string(".scale"));
    std::vector<std::byte> codes(weight.bytes()), scales(scale.bytes());
    filler.Fill(weight, 0, weight.elements(), codes);
    filler.Fill(scale, 0, scale.elements(), scales);
    const bool fp4 = weight.dtype == Dtype::kFp4;
    const int64_t rows = weight.shape[0], cols = weight.shape[1] * (fp4 ? 2 : 1);
    const kernels::Matrix matrix{fp4 ? kernels::WeightFormat::kFp4 : kernels::WeightFormat::kFp8,
                                 codes.data(),
                                 reinterpret_cast<const uint8_t*>(scales.data()),
                                 rows,
                                 cols,
                                 0,
                                 fp4 ? 1 : 32,
                                 32,
                                 scale.shape[1]};
    std::vector<float> row(cols);
    double squares = 0;
    for (int64_t r = 0; r < rows; ++r) {
      kernels::DequantizeRow(matrix, r, row.data());
      for (float x : row) {
        ASSERT_TRUE(std::isfinite(x));
        squares += x * x;
      }
    }
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(rows)), gain, 0.05 * gain) << name;
  }
}

TEST(WriteCheckpoint, EqualOptionsGiveEqualBytes) {
  const Shape shape = Make("nano");
  const Scratch scratch;
  for (const auto& [name, seed] : {std::pair("a", 7), std::pair("b", 7), std::pair("c", 8)}) {
    const Status status =
        WriteCheckpoint(shape, {.directory = scratch / name, .seed = static_cast<uint64_t>(seed)});
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(ReadAll(scratch / "a"), ReadAll(scratch / "b"));
  EXPECT_NE(ReadAll(scratch / "a"), ReadAll(scratch / "c"));
}

TEST(WriteCheckpoint, IndexAndShardsAgreeHoweverTheyAreCut) {
  const Shape shape = Make("nano");
  const Scratch scratch;
  for (const auto& [name, shard_bytes] :
       {std::pair("one", int64_t{1} << 40), std::pair("few", int64_t{200000}),
        std::pair("many", int64_t{0})}) {
    ASSERT_TRUE(
        WriteCheckpoint(shape, {.directory = scratch / name, .shard_bytes = shard_bytes}).ok());
    const json index = json::parse(Read(scratch / (name + std::string("/model.safetensors.index"
                                                                      ".json"))));
    int64_t bytes = 0, tensors = 0;
    for (const auto& [file, text] : ReadAll(scratch / name)) {
      if (!file.ends_with(".safetensors")) continue;
      int64_t end = 0;
      json header = ReadHeader(fs::path(scratch / name) / file);
      header.erase("__metadata__");
      for (const auto& [tensor, entry] : header.items()) {
        EXPECT_EQ(index["weight_map"][tensor], file);
        end = std::max(end, entry["data_offsets"][1].get<int64_t>());
        ++tensors;
      }
      bytes += end;
    }
    EXPECT_EQ(tensors, static_cast<int64_t>(index["weight_map"].size()));
    EXPECT_EQ(bytes, index["metadata"]["total_size"].get<int64_t>());
  }
}

TEST(WriteCheckpoint, HeadersAndHolesHaveTheRightLengths) {
  const Shape shape = Make("nano");
  const Scratch scratch;
  ASSERT_TRUE(WriteCheckpoint(shape, {.directory = scratch / "full"}).ok());
  ASSERT_TRUE(
      WriteCheckpoint(shape, {.directory = scratch / "holes", .contents = Contents::kSparse}).ok());
  ASSERT_TRUE(
      WriteCheckpoint(shape, {.directory = scratch / "heads", .contents = Contents::kHeaderOnly})
          .ok());
  for (const auto& [file, text] : ReadAll(scratch / "full")) {
    const std::string holes = Read(scratch / ("holes/" + file));
    const std::string head = Read(scratch / ("heads/" + file));
    EXPECT_EQ(text.size(), holes.size()) << file;
    EXPECT_TRUE(text.starts_with(head)) << file;
  }
}

TEST(WriteCheckpoint, NeverWritesIntoADirectoryWithFiles) {
  const Scratch scratch;
  const WriteOptions options = {.directory = scratch / "a"};
  ASSERT_TRUE(WriteCheckpoint(Make("nano"), options).ok());
  const Status again = WriteCheckpoint(Make("nano"), options);
  EXPECT_EQ(again.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(again.message().find("is not empty"), std::string::npos);
}

}  // namespace
}  // namespace kuruma::bench_checkpoint
