// kuruma score: log-probabilities of given tokens, JSON Lines in and out.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "commands.h"
#include "engine/logprobs.h"
#include "inputs.h"
#include "model/safetensors.h"
#include "model_loader.h"
#include "report.h"

namespace kuruma {
namespace {

struct ScoreFlags {
  ModelFlags model;
  int top = 0;
  std::string logits_path;
  bool raw_special = false;
};

struct ScoreRequest {
  nlohmann::ordered_json id;
  std::string name;  // of its tensor in the logits file
  std::vector<int32_t> tokens;
};

// Logits of one line, kept until all lines are answered.
struct KeptLogits {
  std::string name;
  std::vector<float> values;  // [tokens, vocab]
  int64_t tokens = 0;
};

class Scorer {
 public:
  Scorer(const ScoreFlags& flags, const LoadedModel& loaded) : flags_(flags), loaded_(loaded) {}

  // Answers one line of input. InvalidArgument: it is wrong; Internal: logits are not finite.
  Result<std::string> Answer(const std::string& line, size_t number) {
    KURUMA_ASSIGN_OR_RETURN(const ScoreRequest request, Parse(line, number));
    return Score(request);
  }

  Status WriteLogits() const {
    std::vector<model::TensorToWrite> tensors;
    for (const KeptLogits& kept : kept_) {
      tensors.push_back({.name = kept.name,
                         .dtype = model::DType::kF32,
                         .shape = {kept.tokens, loaded_.model->config().vocab},
                         .data = kept.values.data()});
    }
    return model::WriteSafetensors(flags_.logits_path, tensors);
  }

 private:
  bool keeps_logits() const { return !flags_.logits_path.empty(); }

  Result<ScoreRequest> Parse(const std::string& line, size_t number) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return InvalidArgument("expected one JSON object");
    ScoreRequest request{.id = number, .name = std::to_string(number), .tokens = {}};
    if (const auto id = json.find("id"); id != json.end()) {
      if (!id->is_string() && !id->is_number_integer()) {
        return InvalidArgument("id must be a string or an integer");
      }
      request.id = *id;
      request.name = id->is_string() ? id->get<std::string>() : id->dump();
    }
    const auto tokens = json.find("tokens"), text = json.find("text");
    if ((tokens == json.end()) == (text == json.end())) {
      return InvalidArgument("expected either \"tokens\" or \"text\"");
    }
    const model::ModelConfig& config = loaded_.model->config();
    if (tokens != json.end()) {
      KURUMA_ASSIGN_OR_RETURN(request.tokens, ParseTokens(*tokens, config.vocab, "tokens"));
    } else {
      if (!text->is_string()) return InvalidArgument("text must be a string");
      if (loaded_.tokenizer == nullptr) {
        return InvalidArgument("the checkpoint has no tokenizer.json: give \"tokens\" instead");
      }
      KURUMA_ASSIGN_OR_RETURN(request.tokens,
                              EncodeText(*loaded_.tokenizer, config.bos_token,
                                         text->get_ref<const std::string&>(), flags_.raw_special));
    }
    if (keeps_logits()) {
      if (request.name == "__metadata__") {
        return InvalidArgument("id \"__metadata__\" cannot name a tensor of the logits file");
      }
      if (!names_.insert(request.name).second) {
        return InvalidArgument(
            fmt::format("id \"{}\" was used before; --logits needs distinct ids", request.name));
      }
    }
    return request;
  }

  Result<std::string> Score(const ScoreRequest& request) {
    const std::vector<int32_t>& tokens = request.tokens;
    auto logprobs = nlohmann::ordered_json::array({nullptr});
    auto top = nlohmann::ordered_json::array();
    double sum = 0;
    KeptLogits kept{request.name, {}, static_cast<int64_t>(tokens.size())};
    model::SequenceState state(loaded_.model->layout());
    const auto sink = [&](int64_t first_position, const model::ForwardResult& result) -> Status {
      for (int64_t r = 0; r < result.first_row.back(); ++r) {
        const auto row = result.Row(r);
        const auto next = static_cast<size_t>(first_position + r + 1);
        const double log_sum = engine::LogSumExp(row);
        if (std::isnan(log_sum)) {
          return Internal(fmt::format("the logits after token {} are not finite", next));
        }
        if (next < tokens.size()) {
          logprobs.push_back(row[tokens[next]] - log_sum);
          sum += row[tokens[next]] - log_sum;
        }
        if (flags_.top > 0) top.push_back(TopList(row, log_sum));
      }
      if (keeps_logits()) {
        kept.values.insert(kept.values.end(), result.logits.begin(), result.logits.end());
      }
      return Status();
    };
    KURUMA_RETURN_IF_ERROR(FeedPrompt(loaded_, {tokens, model::LogitRows::kAll}, &state, sink));
    if (keeps_logits()) kept_.push_back(std::move(kept));
    nlohmann::ordered_json answer{{"id", request.id}, {"tokens", tokens}};
    answer["logprobs"] = std::move(logprobs);
    answer["sum"] = sum;
    const auto predicted = static_cast<double>(tokens.size() - 1);
    if (predicted > 0) {
      answer["perplexity"] = std::exp(-sum / predicted);
    } else {
      answer["perplexity"] = nullptr;
    }
    if (flags_.top > 0) answer["top"] = std::move(top);
    return Dump(answer);
  }

  nlohmann::ordered_json TopList(std::span<const float> row, double log_sum) const {
    auto list = nlohmann::ordered_json::array();
    for (const engine::TokenLogprob& t : engine::TopLogprobs(row, log_sum, flags_.top)) {
      list.push_back({t.token, t.logprob});
    }
    return list;
  }

  const ScoreFlags& flags_;
  const LoadedModel& loaded_;
  std::set<std::string> names_;
  std::vector<KeptLogits> kept_;
};

// Whether the logits file can be written is known before hours of computing, not after.
Status CheckWritable(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  if (access(folder.c_str(), W_OK | X_OK) == 0) return Status();
  return InvalidArgument(fmt::format("{}: cannot be written: no access to {}", path, folder));
}

int RunScore(const ScoreFlags& flags) {
  if (!flags.logits_path.empty()) {
    const Status writable = CheckWritable(flags.logits_path);
    if (!writable.ok()) return Fail("score", writable);
  }
  const auto loaded = LoadModel(flags.model, TokenizerUse::kIfThere);
  if (!loaded.ok()) return Fail("score", loaded.status());
  Scorer scorer(flags, *loaded);
  size_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Result<std::string> answer = scorer.Answer(line, number);
    if (!answer.ok()) {
      const Status status = answer.status();
      return Fail("score", {status.code(), fmt::format("line {}: {}", number, status.message())});
    }
    if (!WriteOut(*answer + "\n")) return kExitBadInput;
  }
  if (flags.logits_path.empty()) return kExitOk;
  const Status written = scorer.WriteLogits();
  return written.ok() ? kExitOk : Fail("score", written);
}

}  // namespace

void RegisterScore(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<ScoreFlags>();
  CLI::App* command = app.add_subcommand(
      "score", "Log-probabilities of given tokens or texts; JSON Lines on stdin and stdout");
  AddModelFlags(command, &flags->model);
  command->add_option("--top", flags->top, "Also report the K best next tokens after each token")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("K");
  command
      ->add_option("--logits", flags->logits_path,
                   "Write every logit to a safetensors file: one float32 tensor [tokens, vocab] "
                   "per line, named by its id")
      ->type_name("FILE");
  command->add_flag("--raw-special", flags->raw_special,
                    "Texts may spell added tokens (default: such spellings are ordinary text)");
  command->footer(
      "Examples:\n"
      "  echo '{\"id\":\"a\",\"tokens\":[0,17,4]}' | kuruma score --model DIR\n"
      "  echo '{\"text\":\"Paris is in France\"}' | kuruma score --model DIR --top 3\n"
      "  kuruma score --model DIR --numerics exact --logits out.safetensors < lines.jsonl\n"
      "Input: {\"id\" (default: the line number), \"tokens\" or \"text\"} per line. A text is "
      "preceded by the\nbegin-of-sentence token. Output, in order: {\"id\", \"tokens\", "
      "\"logprobs\", \"sum\", \"perplexity\"}:\nnatural logarithms of the probability of each "
      "token "
      "given those before it, null for the first.\nWith --top also \"top\": for each token the "
      "best next ones as [[id, logprob], ...].\nThe logits file is kept in memory until the last "
      "line is answered (tokens x vocab x 4 bytes).\nA line that cannot be handled ends the "
      "program "
      "with status 2 after the lines before it.");
  command->callback([flags, exit_code] { *exit_code = RunScore(*flags); });
}

}  // namespace kuruma
