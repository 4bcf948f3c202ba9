// make_bench_checkpoint: writes a random checkpoint in the released layout (see --help).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "bench_checkpoint/shape.h"
#include "bench_checkpoint/summary.h"
#include "bench_checkpoint/write.h"
#include "text/engram_map.h"
#include "text/tokenizer.h"

namespace kuruma::bench_checkpoint {
namespace {

constexpr const char* kAbout =
    "Writes a random checkpoint in the layout of the DeepSeek-V4.1-Flash release: config.json, an\n"
    "index, safetensors shards. Equal options give equal bytes. Prints one line of JSON.\n\n"
    "Presets: nano (1.4 MB, every feature), demo (small, meant for --tokenizer), bench (1.3 "
    "GB,\n"
    "the released proportions at 1/400 of the size), released (510 GB: the released shapes, for\n"
    "--headers-only or --sparse).";

struct Flags {
  std::string preset = "bench";
  Changes changes;
  WriteOptions write;
  int64_t shard_mb = 0;
  bool no_draft = false;
  bool headers_only = false;
  bool sparse = false;
};

void AddFlags(CLI::App& app, Flags& f) {
  app.add_option("out_dir", f.write.directory, "directory to write; new or empty")->required();
  app.add_option("--preset", f.preset, "nano, demo, bench or released")
      ->check(CLI::IsMember(PresetNames()))
      ->capture_default_str();
  app.add_option("--seed", f.write.seed, "seed of every value")->capture_default_str();
  app.add_option("--tokenizer", f.write.tokenizer,
                 "tokenizer.json to copy; gives vocabulary size and Engram token classes.\n"
                 "Without it engram_token_map.json states random classes")
      ->check(CLI::ExistingFile);
  app.add_option("--layers", f.changes.layers,
                 "backbone layers, 6 or more; deals sources and decoder half out anew");
  app.add_option("--hidden", f.changes.hidden, "hidden size, a multiple of 32");
  app.add_option("--experts", f.changes.experts, "routed experts per layer");
  app.add_option("--vocab", f.changes.vocab, "vocabulary size");
  app.add_option("--size-gb", f.changes.size_gb,
                 "choose the number of experts so that the whole comes close to this (10^9 bytes)");
  app.add_option("--shard-mb", f.shard_mb,
                 "join neighbouring shards up to this size (10^6 bytes); without it one shard per\n"
                 "layer, as released")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--no-draft", f.no_draft, "leave out the draft stages");
  CLI::Option* headers =
      app.add_flag("--headers-only", f.headers_only, "shards end behind their headers");
  app.add_flag("--sparse", f.sparse, "shards have holes of the full length instead of values")
      ->excludes(headers);
}

Status UseTokenizer(Flags& f) {
  if (f.write.tokenizer.empty()) return {};
  if (f.changes.vocab) {
    return InvalidArgument("--tokenizer gives the vocabulary size: leave out --vocab");
  }
  KURUMA_ASSIGN_OR_RETURN(auto tokenizer, text::Tokenizer::Load(f.write.tokenizer));
  f.changes.vocab = tokenizer->vocab_size();
  f.changes.classes = text::ComputeTokenClasses(*tokenizer).num_classes;
  return {};
}

Status Run(Flags& f) {
  f.changes.draft = !f.no_draft;
  f.write.shard_bytes = f.shard_mb * 1'000'000;
  f.write.contents = f.headers_only ? Contents::kHeaderOnly
                     : f.sparse     ? Contents::kSparse
                                    : Contents::kFull;
  KURUMA_RETURN_IF_ERROR(UseTokenizer(f));
  KURUMA_ASSIGN_OR_RETURN(const Shape shape, MakeShape(f.preset, f.changes));
  KURUMA_RETURN_IF_ERROR(WriteCheckpoint(shape, f.write));
  std::printf("%s\n", SummaryJson(shape).c_str());
  return {};
}

}  // namespace
}  // namespace kuruma::bench_checkpoint

int main(int argc, char** argv) {
  using kuruma::bench_checkpoint::Flags;
  CLI::App app(kuruma::bench_checkpoint::kAbout, "make_bench_checkpoint");
  Flags flags;
  kuruma::bench_checkpoint::AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  const kuruma::Status status = kuruma::bench_checkpoint::Run(flags);
  if (!status.ok()) std::fprintf(stderr, "make_bench_checkpoint: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
