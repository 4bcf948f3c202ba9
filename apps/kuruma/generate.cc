// kuruma generate: continues a prompt.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/chat.h"
#include "base/log.h"
#include "batch.h"
#include "commands.h"
#include "engine_flags.h"
#include "generation.h"
#include "inputs.h"
#include "model_loader.h"
#include "report.h"
#include "request_file.h"
#include "text/json.h"
#include "text/prompt.h"
#include "text_stream.h"

namespace kuruma {
namespace {

constexpr int64_t kDefaultMaxTokens = 256;

struct GenerateFlags {
  ModelFlags model;
  std::optional<std::string> prompt;
  std::string messages_path;
  std::string tokens_path;
  std::string requests_path;
  EngineFlags engine;
  bool digest = false;
  bool raw_special = false;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty,
      frequency_penalty;
  std::optional<int64_t> top_k, max_tokens;
  std::optional<uint64_t> seed;
  std::optional<int> top_logprobs;
  std::vector<std::string> stops;
  std::vector<int32_t> stop_token_ids;
  int64_t min_tokens = 0;
  bool ignore_eos = false;
  bool json = false;
  bool quiet = false;
};

// What a run needs, from flags and, for --messages, the request's own fields.
struct Plan {
  GenerationInput input;
  std::vector<std::string> stops;
};

Result<std::vector<int32_t>> PromptFromTokens(const std::string& path, int64_t vocab) {
  KURUMA_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  const std::string name = path == "-" ? "standard input" : path;
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_object = json.is_object() && json.contains("tokens");
  if (!is_object && !json.is_array()) {
    return InvalidArgument(name + ": expected one list of token ids or one {\"tokens\": [...]}");
  }
  return ParseTokens(is_object ? json["tokens"] : json, vocab, name + ": tokens");
}

// Fields of the request that were sent, as defaults for flags that were not.
void AdoptRequest(const text::JsonValue& body, const api::SamplingOptions& sent,
                  GenerateFlags* flags, engine::SamplingParams* sampling) {
  const auto has = [&](const char* key) {
    const text::JsonValue* value = body.Find(key);
    return value != nullptr && !value->is_null();
  };
  const auto adopt = [&](const char* key, const auto& value, auto* flag) {
    if (has(key) && !flag->has_value()) *flag = value;
  };
  adopt("temperature", sent.temperature, &flags->temperature);
  adopt("top_p", sent.top_p, &flags->top_p);
  adopt("presence_penalty", sent.presence_penalty, &flags->presence_penalty);
  adopt("frequency_penalty", sent.frequency_penalty, &flags->frequency_penalty);
  adopt("top_logprobs", sent.top_logprobs, &flags->top_logprobs);
  if (sent.seed && !flags->seed) flags->seed = static_cast<uint64_t>(*sent.seed);
  if (sent.max_tokens && !flags->max_tokens) flags->max_tokens = *sent.max_tokens;
  if (flags->stops.empty()) flags->stops = sent.stop;
  sampling->logit_bias = sent.logit_bias;
}

Result<std::vector<int32_t>> PromptFromMessages(const LoadedModel& loaded, GenerateFlags* flags,
                                                engine::SamplingParams* sampling) {
  const std::string name = flags->messages_path == "-" ? "standard input" : flags->messages_path;
  KURUMA_ASSIGN_OR_RETURN(std::string body, ReadInput(flags->messages_path));
  const auto named = [&](const Status& status) {
    return Status(status.code(), name + ": " + status.message());
  };
  Result<text::JsonValue> json = text::ParseJson(body);
  if (!json.ok()) return named(json.status());
  if (json->If<text::JsonValue::Array>() != nullptr) {
    body = "{\"messages\":" + body + "}";
    json = text::ParseJson(body);
    if (!json.ok()) return named(json.status());
  }
  const auto request = api::ParseChatRequest(body, api::ChatOptions());
  if (!request.ok()) return named(request.status());
  if (request->sampling.n != 1) return InvalidArgument(name + ": n: one answer at a time here");
  if (request->tool_choice == text::ToolChoice::kRequired ||
      request->conversation.response_format.kind != text::ResponseFormat::Kind::kText) {
    LogWarn("{}: tool_choice and response_format are shown to the model but not enforced here",
            name);
  }
  AdoptRequest(*json, request->sampling, flags, sampling);
  const text::RenderedPrompt prompt = text::RenderPrompt(request->conversation);
  if (prompt.num_images > 0) return InvalidArgument(name + ": images cannot be read here");
  auto ids = text::EncodePrompt(prompt, *loaded.tokenizer);
  if (!ids.ok()) return named(ids.status());
  return ids;
}

void ApplyFlags(const GenerateFlags& flags, engine::SamplingParams* s) {
  s->temperature = flags.temperature.value_or(s->temperature);
  s->top_p = flags.top_p.value_or(s->top_p);
  s->top_k = flags.top_k.value_or(s->top_k);
  s->min_p = flags.min_p.value_or(s->min_p);
  s->repetition_penalty = flags.repetition_penalty.value_or(s->repetition_penalty);
  s->presence_penalty = flags.presence_penalty.value_or(0);
  s->frequency_penalty = flags.frequency_penalty.value_or(0);
  s->top_logprobs = flags.top_logprobs.value_or(0);
  s->min_tokens = flags.min_tokens;
  s->seed = flags.seed.value_or(s->seed);
}

Result<Plan> MakePlan(const LoadedModel& loaded, GenerateFlags flags) {
  const model::ModelConfig& config = loaded.model->config();
  Plan plan;
  engine::SamplingParams& s = plan.input.sampling;
  s = DefaultSampling(loaded.sampling);
  if (flags.prompt) {
    KURUMA_ASSIGN_OR_RETURN(plan.input.prompt, EncodeText(*loaded.tokenizer, config.bos_token,
                                                          *flags.prompt, flags.raw_special));
  } else if (!flags.tokens_path.empty()) {
    KURUMA_ASSIGN_OR_RETURN(plan.input.prompt, PromptFromTokens(flags.tokens_path, config.vocab));
  } else {
    KURUMA_ASSIGN_OR_RETURN(plan.input.prompt, PromptFromMessages(loaded, &flags, &s));
  }
  ApplyFlags(flags, &s);
  for (const std::string& stop : flags.stops) {
    if (stop.empty()) return InvalidArgument("--stop: a stop string must not be empty");
  }
  const int64_t room = config.max_positions - static_cast<int64_t>(plan.input.prompt.size());
  plan.input.max_tokens =
      flags.max_tokens.value_or(std::max<int64_t>(1, std::min(kDefaultMaxTokens, room)));
  plan.input.ignore_eos = flags.ignore_eos;
  plan.input.stop_tokens = flags.stop_token_ids;
  plan.stops = flags.stops;
  if (!plan.stops.empty() && loaded.tokenizer == nullptr) {
    return InvalidArgument("stop strings need a tokenizer.json in the checkpoint directory");
  }
  return plan;
}

nlohmann::ordered_json ToJson(const LoadedModel& loaded, const Plan& plan, const Generation& g,
                              const std::string& text) {
  const auto prompt_tokens = static_cast<double>(plan.input.prompt.size());
  nlohmann::ordered_json out{{"prompt_tokens", plan.input.prompt.size()}, {"ids", g.ids}};
  out["text"] = nullptr;
  if (loaded.tokenizer != nullptr) out["text"] = text;
  auto logprobs = nlohmann::ordered_json::array(), top = nlohmann::ordered_json::array();
  for (const engine::SampledToken& token : g.sampled) {
    logprobs.push_back(token.logprob);
    auto list = nlohmann::ordered_json::array();
    for (const engine::TokenLogprob& t : token.top) list.push_back({t.token, t.logprob});
    top.push_back(std::move(list));
  }
  out["logprobs"] = std::move(logprobs);
  if (plan.input.sampling.top_logprobs > 0) out["top_logprobs"] = std::move(top);
  out["finish_reason"] = g.finish_reason;
  out["seed"] = plan.input.sampling.seed;
  out["timings"] = {
      {"load_ms", loaded.load_ms},
      {"prefill_ms", g.prefill_ms},
      {"decode_ms", g.decode_ms},
      {"prompt_tokens_per_s", PerSecond(prompt_tokens, g.prefill_ms)},
      {"decode_tokens_per_s", PerSecond(static_cast<double>(g.decode_steps), g.decode_ms)}};
  return out;
}

// What a line of the file says goes before the flags of the command.
Result<int> RunRequests(GenerateFlags flags, const CLI::App& command) {
  KURUMA_RETURN_IF_ERROR(AdoptDeepinferSwitches(command, &flags.model, &flags.engine));
  KURUMA_ASSIGN_OR_RETURN(const engine::EngineOptions options, ToOptions(flags.engine));
  KURUMA_ASSIGN_OR_RETURN(const LoadedModel loaded, LoadModel(flags.model, TokenizerUse::kIfThere));
  RequestDefaults defaults{.sampling = DefaultSampling(loaded.sampling),
                           .max_tokens = flags.max_tokens.value_or(kDefaultMaxTokens),
                           .draws_seeds = !flags.seed};
  ApplyFlags(flags, &defaults.sampling);
  KURUMA_ASSIGN_OR_RETURN(std::vector<FileRequest> requests,
                          ReadRequests(loaded, flags.requests_path, defaults));
  const BatchOptions batch{
      .engine = options, .json = flags.json, .digests = flags.digest, .quiet = flags.quiet};
  const std::string name = flags.requests_path == "-" ? "standard input" : flags.requests_path;
  return RunBatch(loaded, std::move(requests), batch, name);
}

int RunGenerate(const GenerateFlags& flags, const CLI::App& command) {
  const int sources = flags.prompt.has_value() + !flags.messages_path.empty() +
                      !flags.tokens_path.empty() + !flags.requests_path.empty();
  if (sources != 1) {
    return Fail("generate",
                InvalidArgument("give one of --prompt, --messages, --tokens and --requests"));
  }
  if (!flags.requests_path.empty()) {
    const Result<int> code = RunRequests(flags, command);
    return code.ok() ? *code : Fail("generate", code.status());
  }
  const auto loaded = LoadModel(
      flags.model, flags.tokens_path.empty() ? TokenizerUse::kRequired : TokenizerUse::kIfThere);
  if (!loaded.ok()) return Fail("generate", loaded.status());
  const Result<Plan> plan = MakePlan(*loaded, flags);
  if (!plan.ok()) return Fail("generate", plan.status());
  if (loaded->random_weights && !flags.quiet) {
    fmt::print(stderr, "note: this checkpoint has random weights; the text is noise\n");
  }
  const auto deliver = [&](std::string_view text) { return flags.json || WriteOut(text); };
  TextStream stream(loaded->tokenizer.get(), plan->stops, deliver);
  model::SequenceState state(loaded->model->layout());
  const Result<Generation> g =
      Generate(*loaded, plan->input, &state,
               [&](int32_t token, bool may_stop) { return stream.Push(token, may_stop); });
  if (!g.ok()) return Fail("generate", g.status());
  const std::string text = stream.Finish();
  const std::string last = flags.json ? Dump(ToJson(*loaded, *plan, *g, text)) + "\n" : "\n";
  if (!WriteOut(last)) return kExitBadInput;
  if (!flags.quiet) {
    fmt::print(stderr, "[load {:.2f} s; {}]\n", loaded->load_ms / 1000,
               Statistics(plan->input, *g));
  }
  return g->finish_reason == "interrupted" ? kExitInterrupted : kExitOk;
}

void AddSamplingFlags(CLI::App* command, GenerateFlags* f) {
  command->add_option("--temperature", f->temperature,
                      "0: always the best token (default: the model's own)");
  command->add_option("--top-p", f->top_p,
                      "Smallest set of tokens with this mass (default: the model's own)");
  command->add_option("--top-k", f->top_k,
                      "Only the K best tokens (default: 0, all; or the model's own)");
  command->add_option(
      "--min-p", f->min_p,
      "Only tokens at least this probable relative to the best (default: 0, or the model's own)");
  command->add_option(
      "--repetition-penalty", f->repetition_penalty,
      "Above 1: tokens of prompt and answer become less likely (default: 1, or the model's own)");
  command->add_option("--presence-penalty", f->presence_penalty,
                      "Subtracted from logits of tokens the answer holds (default: 0)");
  command->add_option("--frequency-penalty", f->frequency_penalty,
                      "Subtracted once per occurrence in the answer (default: 0)");
  command->add_option("--seed", f->seed,
                      "Equal seeds give equal answers (default: drawn and reported)");
}

void AddStopFlags(CLI::App* command, GenerateFlags* f) {
  command
      ->add_option("--max-tokens", f->max_tokens,
                   "Longest answer (default: 256, or what the context leaves)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("--min-tokens", f->min_tokens, "Nothing ends a shorter answer")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command->add_option("--stop", f->stops, "Text that ends the answer and is left out; repeatable")
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT");
  command->add_option("--stop-token-ids", f->stop_token_ids, "Token ids that end the answer")
      ->delimiter(',')
      ->type_name("ID,ID,...");
  command->add_flag("--ignore-eos", f->ignore_eos, "The end-of-sentence token ends nothing");
}

// The engine's flags, which mean nothing without --requests.
void AddRequestsFlags(CLI::App* command, GenerateFlags* f) {
  CLI::App* group = command->add_option_group("With --requests");
  AddEngineFlags(group, &f->engine);
  group->add_flag("--digest", f->digest,
                  "With --json: SHA-256 of the logits that each answer was drawn from");
  CLI::Option* requests = command->get_option("--requests");
  for (CLI::Option* option : group->get_options()) option->needs(requests);
  for (const char* other : {"--chunk", "--stop", "--stop-token-ids", "--ignore-eos", "--min-tokens",
                            "--top-logprobs", "--raw-special"}) {
    command->get_option(other)->excludes(requests);
  }
}

}  // namespace

void RegisterGenerate(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt; text as it comes");
  AddModelFlags(command, &flags->model);
  command
      ->add_option("--prompt", flags->prompt, "Text to continue, after the begin-of-sentence token")
      ->type_name("TEXT");
  command
      ->add_option("--messages", flags->messages_path,
                   "Chat Completions body, or a list of messages (- is stdin)")
      ->type_name("FILE");
  command
      ->add_option("--tokens", flags->tokens_path,
                   "Prompt as a JSON list of ids or {\"tokens\": [...]} (- is stdin)")
      ->type_name("FILE");
  command
      ->add_option("--requests", flags->requests_path,
                   "Many requests through the engine, one JSON object per line (- is stdin)")
      ->type_name("FILE");
  command->add_flag("--raw-special", flags->raw_special,
                    "--prompt may spell added tokens (default: they are ordinary text)");
  AddSamplingFlags(command, flags.get());
  AddStopFlags(command, flags.get());
  command
      ->add_option("--top-logprobs", flags->top_logprobs,
                   "With --json: the K best tokens of each step (default: 0)")
      ->check(CLI::Range(0, 1 << 20));
  command->add_flag("--json", flags->json,
                    "One JSON object at the end instead of text; with --requests one per request");
  AddRequestsFlags(command, flags.get());
  command->add_flag("--quiet", flags->quiet, "No statistics on stderr");
  command->footer(
      "Examples:\n"
      "  kuruma generate --model DIR --prompt 'The sea was' --max-tokens 64\n"
      "  kuruma generate --model DIR --messages chat.json --temperature 0\n"
      "  echo '[0,17,4]' | kuruma generate --model DIR --tokens - --json --seed 7\n"
      "  kuruma generate --model DIR --requests batch.jsonl --json --digest > answers.jsonl\n"
      "Exactly one of --prompt, --messages, --tokens and --requests. Fields of a Chat Completions "
      "body "
      "(temperature, top_p,\npenalties, seed, max_tokens, stop, logit_bias, top_logprobs) count "
      "where the flag is absent. Sampling\ndefaults are those of the checkpoint's "
      "generation_config.json, "
      "else temperature 1 and top-p 0.95. Without tokenizer.json ids are\nprinted. --json writes "
      "{\"prompt_tokens\", \"ids\", \"text\", \"logprobs\", \"finish_reason\", \"seed\", "
      "\"timings\"};\nids include a final stop token, text does not. Lines of "
      "--requests hold prompt, messages or tokens,\nand id, max_tokens, temperature, top_p, seed, "
      "n, "
      "stop, priority (higher first), timeout and the other fields of\nthe HTTP API; each result "
      "is "
      "{\"id\", \"tokens\", \"text\", \"finish\", \"cached_tokens\", \"preemptions\", "
      "\"digest\", ...}. Ctrl-C ends the answer "
      "with what there is (status 130).");
  command->callback([flags, command, exit_code] { *exit_code = RunGenerate(*flags, *command); });
}

}  // namespace kuruma
