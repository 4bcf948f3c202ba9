// kuruma serve: the model behind OpenAI- and Anthropic-compatible HTTP.
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/metrics.h"
#include "commands.h"
#include "device/host.h"
#include "engine/engine.h"
#include "engine_flags.h"
#include "model_loader.h"
#include "report.h"
#include "server/http.h"
#include "server/line_writer.h"
#include "server/scripted.h"
#include "server/service.h"
#include "server/settings.h"
#include "server/settings_table.h"

namespace kuruma {
namespace {

using server::ServerSettings;

// The options that were given, as text; read by server/settings.
struct ServeFlags {
  std::map<std::string, std::vector<std::string>> values;  // by key
  std::map<std::string, CLI::Option*> options;
  std::string config;
  bool print_config = false;
  bool help_env = false;
};

server::SettingsInput ToInput(const ServeFlags& flags) {
  server::SettingsInput input;
  input.config_file = flags.config;
  for (const auto& [key, option] : flags.options) {
    if (option->count() == 0) continue;
    std::vector<std::string> values = flags.values.at(key);
    const server::Option& known = *server::FindOption(key);
    const bool is_bool = std::holds_alternative<server::BoolField>(known.field);
    // Of a switch only: an empty --api-key must not become the key "true".
    if (is_bool && (values.empty() || values == std::vector<std::string>{""})) values = {"true"};
    const std::string name = known.flag().substr(2);
    for (const std::string& value : values) input.flags.emplace_back(name, value);
  }
  input.environment = Environment();
  return input;
}

// What runs: a model, or a script in its place. Members are destroyed in reverse order.
struct Backend {
  LoadedModel loaded;                          // without a model for a script
  std::unique_ptr<text::Tokenizer> tokenizer;  // of a script
  std::string name;
  std::string about;  // one line for the summary
  int64_t context = 0;
  int32_t bos_token = 0;
  int32_t eos_token = 0;
  std::unique_ptr<engine::Engine> engine;

  const text::Tokenizer& Tokens() const { return tokenizer ? *tokenizer : *loaded.tokenizer; }
};

engine::EngineOptions ToEngineOptions(const ServerSettings& s, MetricsRegistry* metrics) {
  engine::EngineOptions options;
  options.max_sequences = s.max_sequences;
  options.max_step_tokens = s.max_step_tokens;
  options.max_queue = s.max_queue;
  options.kv_bytes = s.kv_memory;
  options.snapshot_bytes = s.snapshot_memory;
  options.target_tpot_ms = s.target_tpot_ms;
  options.synchronous = s.sync;
  options.prefix_cache = s.prefix_cache;
  options.bounded_replay = s.replay == "bounded";
  options.metrics = metrics;
  return options;
}

Result<Backend> LoadScripted(const ServerSettings& s, const engine::EngineOptions& options) {
  Backend backend;
  const std::string given = s.model.empty() ? "" : s.model + "/tokenizer.json";
  KURUMA_ASSIGN_OR_RETURN(const std::string file, TokenizerFile(given));
  KURUMA_ASSIGN_OR_RETURN(backend.tokenizer, text::Tokenizer::Load(file));
  KURUMA_ASSIGN_OR_RETURN(auto script, server::LoadScript(s.scripted, *backend.tokenizer));
  backend.about = fmt::format("answers from {} ({} lines), no model", s.scripted, script.size());
  backend.name = "scripted";
  backend.context = 1 << 20;
  backend.eos_token = backend.tokenizer->AddedTokenId("<｜end▁of▁sentence｜>").value_or(1);
  backend.bos_token = backend.tokenizer->AddedTokenId("<｜begin▁of▁sentence｜>").value_or(0);
  constexpr int64_t kBlockBytes = 128;  // nothing is stored
  const engine::RunnerTraits traits{.digest = "scripted",
                                    .vocab = backend.tokenizer->vocab_size(),
                                    .context = backend.context,
                                    .block_bytes = kBlockBytes,
                                    .replay_from = {}};
  engine::EngineOptions scripted = options;
  if (scripted.kv_bytes == 0) scripted.kv_bytes = int64_t{32} << 20;
  auto runner = std::make_unique<server::ScriptedRunner>(std::move(script), *backend.tokenizer,
                                                         backend.eos_token);
  KURUMA_ASSIGN_OR_RETURN(backend.engine,
                          engine::Engine::Create(std::move(runner), traits, scripted));
  return backend;
}

Result<Backend> LoadBackend(const ServerSettings& s, const engine::EngineOptions& options) {
  if (!s.scripted.empty()) return LoadScripted(s, options);
  Backend backend;
  const ModelFlags flags{.directory = s.model,
                         .numerics = s.numerics,
                         .kernels = s.kernels,
                         .prefill = s.prefill,
                         .keep_tokens = s.keep_tokens,
                         .chunk = 0,
                         .threads = static_cast<int>(s.threads)};
  KURUMA_ASSIGN_OR_RETURN(backend.loaded, LoadModel(flags, TokenizerUse::kRequired));
  KURUMA_ASSIGN_OR_RETURN(const std::string directory, ModelDirectory(s.model));
  const model::ModelConfig& config = backend.loaded.model->config();
  backend.name = std::filesystem::weakly_canonical(directory).filename();
  backend.about =
      fmt::format("{}: {} layers, context {}, numerics {}, loaded in {:.2f} s{}", directory,
                  config.layers, config.max_positions, s.numerics, backend.loaded.load_ms / 1000,
                  backend.loaded.random_weights ? "; random weights: the text is noise" : "");
  backend.context = config.max_positions;
  backend.bos_token = config.bos_token;
  backend.eos_token = config.eos_token;
  KURUMA_ASSIGN_OR_RETURN(backend.engine,
                          engine::Engine::Create(backend.loaded.model.get(), options));
  return backend;
}

server::ServedModel ToServed(const ServerSettings& s, const Backend& backend) {
  server::ServedModel model;
  model.name = s.served_model_name.empty() ? backend.name : s.served_model_name;
  model.aliases = s.model_alias;
  // What clients made for DeepSeek's service call it.
  for (const char* alias :
       {"deepseek-flash", "deepseek-v4.1-flash", "deepseek-chat", "deepseek-reasoner"}) {
    model.aliases.push_back(alias);
  }
  model.tokenizer = &backend.Tokens();
  model.context = backend.context;
  model.bos_token = backend.bos_token;
  model.eos_token = backend.eos_token;
  const SamplingDefaults& defaults = backend.loaded.sampling;
  model.chat.sampling.temperature = defaults.temperature;
  model.chat.sampling.top_p = defaults.top_p;
  model.chat.sampling.top_k = defaults.top_k;
  model.chat.sampling.min_p = defaults.min_p;
  model.chat.sampling.repetition_penalty = defaults.repetition_penalty;
  model.chat.default_thinking = s.thinking;
  model.reasoning_alias = s.reasoning_field == "both";
  return model;
}

std::string Url(const ServerSettings& s, int port) {
  if (!s.unix_socket.empty()) return "unix:" + s.unix_socket;
  const bool is_v6 = s.host.find(':') != std::string::npos;
  return fmt::format("http{}://{}{}{}:{}", s.tls_cert.empty() ? "" : "s", is_v6 ? "[" : "", s.host,
                     is_v6 ? "]" : "", port);
}

std::string Summary(const ServerSettings& s, const Backend& backend, int port) {
  const engine::EngineCounts counts = backend.engine->counts();
  const auto on = [](bool is_on) { return is_on ? "on" : "off"; };
  std::string out = fmt::format("kuruma {}\n  model     {}\n", KURUMA_VERSION, backend.about);
  out += fmt::format("  cache     {} tokens in {} blocks; prefix cache {}, window snapshots {}\n",
                     counts.blocks * 128, counts.blocks, on(s.prefix_cache),
                     s.snapshot_memory > 0 ? FormatBytes(s.snapshot_memory) : "off");
  out += fmt::format(
      "  engine    {} sequences at once, {} tokens a step, {} may wait; {} scheduling, prefill {}, "
      "replay {}\n",
      s.max_sequences, s.max_step_tokens, s.max_queue, s.sync ? "synchronous" : "asynchronous",
      s.prefill, s.replay);
  out += fmt::format("  clients   {}, TLS {}, thinking {} by default\n",
                     s.api_key.empty() ? "no API key asked for, this machine only"
                                       : fmt::format("{} API keys", s.api_key.size()),
                     on(!s.tls_cert.empty()), on(s.thinking));
  out += "  off yet   grammar-constrained output, images, drafts\n";
  return out + fmt::format("  ready     {}\n", Url(s, port));
}

// Until SIGINT or SIGTERM, which are blocked; afterwards a second one ends the program at once.
void WaitForEnd(const sigset_t& ends) {
  int signal = 0;
  sigwait(&ends, &signal);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);
  LogInfo("signal {}: no new requests, running ones are finished", signal);
}

Status Serve(const ServerSettings& s) {
  sigset_t ends;  // blocked before any thread is made, so that only WaitForEnd sees them
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  MetricsRegistry metrics;
  KURUMA_ASSIGN_OR_RETURN(Backend backend, LoadBackend(s, ToEngineOptions(s, &metrics)));
  server::ServiceOptions options;
  options.model = ToServed(s, backend);
  KURUMA_ASSIGN_OR_RETURN(options.keys, server::ApiKeys::Create(s.api_key));
  options.version = KURUMA_VERSION;
  options.log_prompts = s.log_prompts;
  options.max_requests = s.max_sequences + s.max_queue;
  options.resident_bytes = device::ResidentBytes;
  server::Service service(std::move(options), backend.engine.get(), &metrics);
  server::LineWriter access_log(STDERR_FILENO);
  server::HttpOptions http_options = server::ToHttpOptions(s);
  http_options.error_body = server::ErrorBodyOfPath;
  if (s.access_log) {
    http_options.access_log = [&](std::string_view line) { access_log.Add(line); };
  }
  KURUMA_ASSIGN_OR_RETURN(
      const auto http,
      server::HttpServer::Create(http_options, [&](server::HttpRequest request, auto reply) {
        service.Serve(std::move(request), std::move(reply));
      }));
  if (!WriteOut(Summary(s, backend, http->port()))) LogWarn("nobody reads the summary");
  WaitForEnd(ends);
  service.StartDraining();
  const auto limit = std::chrono::duration<double>(s.drain_timeout);
  if (!http->Drain(std::chrono::duration_cast<std::chrono::milliseconds>(limit))) {
    LogWarn("the time is over: requests that still ran were cut");
  }
  backend.engine->Stop();
  return Status();
}

int RunServe(const ServeFlags& flags) {
  if (flags.help_env) {
    return WriteOut(server::DescribeVariables()) ? kExitOk : kExitBadInput;
  }
  const auto loaded = server::LoadSettings(ToInput(flags));
  if (!loaded.ok()) return Fail("serve", loaded.status());
  if (flags.print_config) {
    return WriteOut(server::PrintSettings(*loaded)) ? kExitOk : kExitBadInput;
  }
  const Status level = SetLogLevel(loaded->settings.log_level);
  if (!level.ok()) return Fail("serve", level);
  for (const std::string& warning : loaded->warnings) LogWarn("{}", warning);
  const Status served = Serve(loaded->settings);
  return served.ok() ? kExitOk : Fail("serve", served);
}

}  // namespace

void RegisterServe(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = app.add_subcommand(
      "serve", "The model behind OpenAI- and Anthropic-compatible HTTP, with a page to look at");
  command->add_option("--config", flags->config, "TOML file with any of the options below")
      ->type_name("FILE");
  command->add_flag("--print-config", flags->print_config,
                    "Print the effective options and where each comes from");
  command->add_flag("--help-env", flags->help_env, "Print the environment variables that are read");
  for (const server::Option& option : server::ServerOptions()) {
    const std::string key(option.key);
    CLI::Option* added =
        command->add_option(option.flag(), flags->values[key], std::string(option.help));
    added->type_name(option.value_name())->group(std::string(option.section));
    if (std::holds_alternative<server::BoolField>(option.field)) {
      added->expected(0, 1);
    } else {
      added->type_size(1)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
    flags->options[key] = added;
  }
  command->footer(
      "Examples:\n"
      "  kuruma serve                                   the bundled model on "
      "http://127.0.0.1:8000\n"
      "  kuruma serve --model DIR --host 0.0.0.0 --api-key \"$KEY\"\n"
      "  kuruma serve --scripted answers.jsonl          no model, for tests of clients\n"
      "SIGTERM or Ctrl-C finishes what runs (drain_timeout) and ends with status 0; a second one "
      "ends at once.");
  command->callback([flags, exit_code] { *exit_code = RunServe(*flags); });
}

}  // namespace kuruma
