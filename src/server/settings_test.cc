// What the server is told: layers, sources, errors that say where and what.
#include "server/settings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "server/deepinfer_switches.h"
#include "server/settings_table.h"

namespace kuruma::server {
namespace {

std::string WriteFile(const std::string& text) {
  const std::string path = testing::TempDir() + "/kuruma_settings_test.toml";
  std::ofstream(path) << text;
  return path;
}

LoadedSettings Load(const SettingsInput& input) {
  auto loaded = LoadSettings(input);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return loaded.ok() ? *loaded : LoadedSettings{};
}

std::string ErrorOf(const SettingsInput& input) { return LoadSettings(input).status().message(); }

std::string FileError(const std::string& text) {
  SettingsInput input;
  input.config_file = WriteFile(text);
  const std::string error = ErrorOf(input);
  EXPECT_TRUE(error.starts_with(input.config_file + ":")) << error;
  return error.substr(std::min(error.size(), input.config_file.size() + 1));
}

std::string FlagError(const std::string& name, const std::string& value) {
  SettingsInput input;
  input.flags = {{name, value}};
  return ErrorOf(input);
}

TEST(Settings, LaterLayersWin) {
  SettingsInput input;
  input.config_file = WriteFile(
      "port = 1\nmax_queue = 1\nprefill = \"exact\"\nsync = true\n"
      "kv_memory = \"2GiB\"\nidle_timeout = 3\n");
  EXPECT_EQ(Load({}).settings.port, 8000);
  EXPECT_EQ(Load(input).settings.port, 1);
  EXPECT_EQ(Load(input).settings.idle_timeout, 3.0);
  input.environment = {{"DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE", "compact"},
                       {"KURUMA_PORT", "2"},
                       {"KURUMA_MAX_QUEUE", "2"},
                       {"PATH", "/bin"}};
  input.flags = {{"port", "9"}, {"port", "3"}};
  const LoadedSettings loaded = Load(input);
  EXPECT_EQ(loaded.settings.port, 3);
  EXPECT_EQ(loaded.settings.max_queue, 2);
  EXPECT_EQ(loaded.settings.prefill, "compact");
  EXPECT_TRUE(loaded.settings.sync);
  EXPECT_EQ(loaded.settings.kv_memory, int64_t{2} << 30);
  EXPECT_EQ(loaded.sources.at("port"), "flag --port");
  EXPECT_EQ(loaded.sources.at("max_queue"), "KURUMA_MAX_QUEUE");
  EXPECT_EQ(loaded.sources.at("prefill"), "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE");
  EXPECT_EQ(loaded.sources.at("sync"), input.config_file + ":4");
  EXPECT_FALSE(loaded.sources.contains("threads"));
  input.environment["KURUMA_PREFILL"] = "full";
  EXPECT_EQ(Load(input).settings.prefill, "full");
  input.flags.emplace_back("prefill", "exact");
  EXPECT_EQ(Load(input).settings.prefill, "exact");
}

TEST(Settings, ListsAreRepeatedFlagsOrCommas) {
  SettingsInput input;
  input.flags = {{"api-key", "a"}, {"api-key", "b,c"}};
  input.environment = {{"KURUMA_CORS_ORIGIN", "https://a,https://b"}, {"KURUMA_API_KEY", "lost"}};
  const ServerSettings settings = Load(input).settings;
  EXPECT_EQ(settings.api_key, (std::vector<std::string>{"a", "b,c"}));
  EXPECT_EQ(settings.cors_origin, (std::vector<std::string>{"https://a", "https://b"}));
}

TEST(Settings, VariablesNameTheFile) {
  SettingsInput input;
  input.environment = {{"KURUMA_CONFIG", WriteFile("port = 77\n")}};
  EXPECT_EQ(Load(input).settings.port, 77);
  input.environment["KURUMA_CONFIG"] = "/no/such/file.toml";
  EXPECT_EQ(ErrorOf(input), "configuration file /no/such/file.toml: No such file or directory");
}

TEST(Settings, ErrorsSayWhereAndWhatWouldBeRight) {
  EXPECT_EQ(FileError("\nmax_queue = 0\n"),
            "2: max_queue: must be an integer from 1 to 1000000, not \"0\"");
  EXPECT_EQ(FileError("port = \"80\"\n"), "1: port: must be an integer from 0 to 65535");
  EXPECT_EQ(FileError("port = 1.5\n"), "1: port: must be an integer from 0 to 65535");
  EXPECT_EQ(FileError("sync = 1\n"), "1: sync: must be true or false");
  EXPECT_EQ(FileError("host = 1\n"), "1: host: must be a string");
  EXPECT_EQ(FileError("model_alias = \"a\"\n"),
            "1: model_alias: must be a list of strings, none of them empty");
  EXPECT_EQ(FileError("model_alias = [\"a\", 1]\n"),
            "1: model_alias: must be a list of strings, none of them empty");
  EXPECT_EQ(FileError("prot = 1\n"), "1: unknown key prot (did you mean port?)");
  EXPECT_EQ(FileError("[server]\nport = 1\n"), "1: unknown key server");
  EXPECT_TRUE(FileError("port = 1\nport = 2\n").starts_with("2: "));
  EXPECT_TRUE(FileError("port = \n").starts_with("1: "));
  EXPECT_EQ(FlagError("replay", "both"), "--replay: must be one of exact, bounded, not \"both\"");
  EXPECT_EQ(FlagError("idle-timeout", "nan"),
            "--idle-timeout: must be a number from 0.001 to 604800, not \"nan\"");
  EXPECT_EQ(FlagError("threads", "2x"), "--threads: must be an integer from 0 to 1024, not \"2x\"");
  EXPECT_EQ(FlagError("nonsense", ""), "unknown flag --nonsense");
  SettingsInput input;
  input.environment = {{"KURUMA_MAX_QUEU", "1"}};
  EXPECT_EQ(ErrorOf(input),
            "unknown environment variable KURUMA_MAX_QUEU (did you mean KURUMA_MAX_QUEUE?)");
  input.environment = {{"KURUMA_max_queue", "1"}};
  EXPECT_NE(ErrorOf(input), "");
  input.environment = {{"KURUMA_SYNC", "maybe"}};
  EXPECT_EQ(ErrorOf(input),
            "environment variable KURUMA_SYNC: must be true or false, not \"maybe\"");
}

TEST(Settings, BytesHaveSuffixes) {
  const auto bytes = [](const std::string& text) {
    SettingsInput input;
    input.flags = {{"kv-memory", text}};
    const auto loaded = LoadSettings(input);
    return loaded.ok() ? loaded->settings.kv_memory : -1;
  };
  EXPECT_EQ(bytes("123"), 123);
  EXPECT_EQ(bytes("4KiB"), 4096);
  EXPECT_EQ(bytes("1.5 GiB"), 3 << 29);
  EXPECT_EQ(bytes("3GB"), 3'000'000'000);
  EXPECT_EQ(bytes("0"), 0) << "found at start";
  for (const std::string wrong : {"", "GiB", "1XB", "-1", "1e99", "1 2"}) {
    EXPECT_EQ(bytes(wrong), -1) << wrong;
  }
}

TEST(Settings, ContradictionsAreRefused) {
  EXPECT_EQ(FlagError("tls-cert", "x"), "tls_cert and tls_key go together: one of them is missing");
  EXPECT_EQ(FlagError("max-sequences", "600"),
            "max_step_tokens (512) must be at least max_sequences (600)");
  EXPECT_TRUE(FlagError("host", "0.0.0.0").starts_with("refusing to listen on \"0.0.0.0\""));
  SettingsInput input;
  input.flags = {{"host", "0.0.0.0"}, {"api-key", "k"}};
  EXPECT_EQ(Load(input).settings.host, "0.0.0.0");
}

TEST(Settings, PrintedSettingsCanBeReadAgain) {
  SettingsInput input;
  input.flags = {{"port", "81"},          {"model", "a \"b\" \\ c"}, {"model-alias", "x"},
                 {"model-alias", "y, z"}, {"idle-timeout", "0.25"},  {"sync", "true"},
                 {"kv-memory", "3GiB"}};
  const std::string printed = PrintSettings(Load(input));
  EXPECT_NE(printed.find("port = 81  # flag --port\n"), std::string::npos) << printed;
  EXPECT_NE(printed.find("max_queue = 1024  # default\n"), std::string::npos) << printed;
  SettingsInput again;
  again.config_file = WriteFile(printed);
  const LoadedSettings loaded = Load(again);
  for (const Option& option : ServerOptions()) {
    EXPECT_EQ(FormatOption(option, loaded.settings), FormatOption(option, Load(input).settings));
  }
}

TEST(Settings, SecretsAreNeverShown) {
  SettingsInput input;
  input.flags = {{"api-key", "sk-secret"}};
  const std::string printed = PrintSettings(Load(input));
  EXPECT_EQ(printed.find("sk-secret"), std::string::npos) << printed;
  EXPECT_NE(printed.find("api_key = [\"***\"]  # flag --api-key"), std::string::npos) << printed;
  EXPECT_EQ(FlagError("api-key", "***"),
            "--api-key: must be keys, not empty (\"***\" stands for a hidden one)");
  EXPECT_EQ(FlagError("api-key", "sk secret").find("secret"), std::string::npos);
}

// The table is the one description: every default is legal, names are unique and documented.
TEST(Settings, TheTableIsConsistent) {
  std::set<std::string> seen;
  const std::string variables = DescribeVariables();
  for (const Option& option : ServerOptions()) {
    EXPECT_TRUE(seen.insert(std::string(option.key)).second) << option.key;
    EXPECT_FALSE(option.help.empty());
    EXPECT_NE(variables.find(option.variable() + "="), std::string::npos);
    ServerSettings settings;
    const std::string text = FormatOption(option, settings);
    SettingsInput input;
    input.config_file = WriteFile(fmt::format("{} = {}\n", option.key, text));
    EXPECT_EQ(ErrorOf(input), "");
  }
}

TEST(Settings, ThePageOfOptionsIsUpToDate) {
  std::ifstream in(KURUMA_SOURCE_DIR "/docs/serve_options.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  const std::string fresh = KURUMA_BINARY_DIR "/serve_options.md";
  std::ofstream(fresh) << DescribeSettings();
  EXPECT_EQ(page, DescribeSettings()) << "copy " << fresh << " to docs/";
}

TEST(DeepinferSwitches, SetWhatTheyMeanHere) {
  const auto read = [](const std::string& name, const std::string& value) {
    SettingsInput input;
    input.environment = {{"DEEPINFER_" + name, value}};
    return Load(input);
  };
  const std::string mode = "YOCO_PREFILL_TRUNCATION_MODE";
  EXPECT_EQ(read(mode, "off").settings.prefill, "full");
  EXPECT_EQ(read(mode, "mask").settings.prefill, "compact");
  EXPECT_EQ(read("YOCO_PREFILL_KEEP_TOKENS", "140").settings.keep_tokens, 140);
  EXPECT_TRUE(read("ZERO_OVERHEAD_SCHEDULING", "False").settings.sync);
  EXPECT_FALSE(read("ZERO_OVERHEAD_SCHEDULING", "1").settings.sync);
  EXPECT_EQ(read("CPP_LOG_LEVEL", "error").settings.log_level, "error");
  EXPECT_TRUE(read("BATCH_INVARIANT", "0").warnings.empty());
  EXPECT_EQ(read("GLOO_TIMEOUT", "1").warnings[0],
            "environment variable DEEPINFER_GLOO_TIMEOUT has no meaning here and is ignored");
  EXPECT_EQ(read("NONSENSE", "1").warnings[0],
            "environment variable DEEPINFER_NONSENSE is unknown and ignored");
}

TEST(DeepinferSwitches, WrongValuesAreNamed) {
  SettingsInput input;
  input.environment = {{"DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE", "maybe"}};
  EXPECT_EQ(
      ErrorOf(input),
      "environment variable DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE: must be one of off, mask, "
      "compact, not \"maybe\"");
  input.environment = {{"DEEPINFER_YOCO_PREFILL_KEEP_TOKENS", "-1"}};
  EXPECT_EQ(ErrorOf(input),
            "environment variable DEEPINFER_YOCO_PREFILL_KEEP_TOKENS: must be an integer from 0 to "
            "1000000000000, not \"-1\"");
}

// Every option that a switch names exists.
TEST(DeepinferSwitches, NameExistingOptions) {
  const auto switches = ReadDeepinferSwitches({{"DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE", "off"},
                                               {"DEEPINFER_YOCO_PREFILL_KEEP_TOKENS", "1"},
                                               {"DEEPINFER_ZERO_OVERHEAD_SCHEDULING", "1"},
                                               {"DEEPINFER_CPP_LOG_LEVEL", "info"}});
  ASSERT_TRUE(switches.ok());
  ASSERT_EQ(switches->choices.size(), 4u);
  for (const auto& choice : switches->choices) EXPECT_NE(FindOption(choice.key), nullptr);
}

}  // namespace
}  // namespace kuruma::server
