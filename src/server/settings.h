// Everything `kuruma serve` can be told, and where it was told: defaults, then a TOML file, then
// DEEPINFER_* variables, then KURUMA_* variables, then flags; later ones win.
//
// Each option is described once, in settings_table.cc: its flag --max-queue, its TOML key
// max_queue and its variable KURUMA_MAX_QUEUE, its values and its help text come from there.
#ifndef KURUMA_SERVER_SETTINGS_H_
#define KURUMA_SERVER_SETTINGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "server/http.h"

namespace kuruma::server {

// Field comments are the help texts of settings_table.cc. Times are in seconds.
struct ServerSettings {
  std::string model;
  std::string scripted;
  std::string served_model_name;
  std::vector<std::string> model_alias;

  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::string unix_socket;
  std::string tls_cert;
  std::string tls_key;
  std::vector<std::string> api_key;
  std::vector<std::string> cors_origin;

  int64_t http_threads = 1;
  int64_t max_connections = 4096;
  int64_t max_header_bytes = 32 << 10;
  int64_t max_body_bytes = 64 << 20;
  int64_t max_buffer_bytes = 1 << 20;
  int64_t min_body_rate = 256;
  double header_timeout = 10;
  double body_timeout = 30;
  double idle_timeout = 75;
  double write_timeout = 30;
  double sse_keep_alive = 15;
  double drain_timeout = 30;

  int64_t max_queue = 1024;
  int64_t max_sequences = 32;
  int64_t max_step_tokens = 512;
  int64_t kv_memory = 0;
  int64_t snapshot_memory = int64_t{256} << 20;
  double target_tpot_ms = 0;
  bool sync = false;
  bool prefix_cache = true;
  std::string replay = "exact";
  std::string prefill = "exact";
  int64_t keep_tokens = 0;
  int64_t threads = 0;
  std::string numerics = "release";
  std::string kernels = "cpu";

  bool thinking = true;
  std::string reasoning_field = "reasoning_content";
  bool access_log = true;
  bool log_prompts = false;
  std::string log_level = "info";
};

// What a start of the server was told, unread.
struct SettingsInput {
  // --name VALUE in their order, without the dashes; lists: once per value.
  std::vector<std::pair<std::string, std::string>> flags;
  std::string config_file;                         // --config; empty: KURUMA_CONFIG, or none
  std::map<std::string, std::string> environment;  // all variables; others than ours do not matter
};

struct LoadedSettings {
  ServerSettings settings;
  std::map<std::string, std::string, std::less<>> sources;  // key -> "flag --port"; absent: default
  std::vector<std::string> warnings;                        // for the log, once at start
};

// InvalidArgument, one line: an unknown key, variable or flag; a value of the wrong type or out of
// range, with where it stands (file:line, variable or flag) and what would be right; options that
// contradict each other; a network address without API keys. NotFound: no such file.
Result<LoadedSettings> LoadSettings(const SettingsInput& input);

// The effective values as TOML, the source of each as a comment; secrets as "***". A file of it
// gives the same settings, secrets aside (those are refused).
std::string PrintSettings(const LoadedSettings& loaded);

// All options as a Markdown page: docs/serve_options.md.
std::string DescribeSettings();

// All variables that are read, one per line, with what they do: `kuruma serve --help-env`.
std::string DescribeVariables();

// The part of the settings that the HTTP layer reads.
HttpOptions ToHttpOptions(const ServerSettings& settings);

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_SETTINGS_H_
