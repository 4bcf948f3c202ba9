// Load for a running `kuruma serve`: one mode per run, its report as JSON on standard output.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "modes.h"

namespace kuruma::load {
namespace {

int Main(int argc, char** argv) {
  CLI::App app("Puts load on a running `kuruma serve` on 127.0.0.1; prints JSON");
  Target target;
  RateOptions rate;
  SoakOptions soak;
  std::string mode;
  size_t connections = 0, streams = 0;
  double delay_ms = 0, ramp_s = 2;
  app.add_option("--mode", mode, "short, rate, streams or soak")
      ->required()
      ->check(CLI::IsMember({"short", "rate", "streams", "soak"}));
  app.add_option("--port", target.port, "of the server")->required();
  app.add_option("--pid", target.pid, "of the server, to measure its CPU time and open files");
  app.add_option("--prompt", target.prompt, "content of the user's message");
  app.add_option("--stream-prompt", soak.stream_prompt, "of the streams of a soak");
  app.add_option("--max-tokens", target.max_tokens, "of an answer");
  app.add_option("--seconds", target.seconds, "to measure")->check(CLI::PositiveNumber);
  app.add_option("--connections", connections,
                 "open at once; 0: 1000 for rate, 16 for short, 8 for soak");
  app.add_option("--rate", rate.rate, "requests per second")->check(CLI::PositiveNumber);
  app.add_option("--bound-ms", rate.bound_ms, "later answers are no goodput");
  app.add_option("--streams", streams, "at once; 0: 100 for streams, 32 for soak");
  app.add_option("--delay-ms", delay_ms, "between scripted tokens of a stream");
  app.add_option("--ramp", ramp_s, "seconds over which streams begin");
  CLI11_PARSE(app, argc, argv);
  Json report;
  if (mode == "short") {
    report = RunShort(target, connections == 0 ? 16 : connections);
  } else if (mode == "rate") {
    if (connections > 0) rate.connections = connections;
    report = RunRate(target, rate);
  } else if (mode == "streams") {
    report = RunStreams(target, streams == 0 ? 100 : streams, delay_ms, ramp_s);
  } else {
    if (connections > 0) soak.connections = connections;
    if (streams > 0) soak.streams = streams;
    report = RunSoak(target, soak);
  }
  std::printf("%s\n", report.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace kuruma::load

int main(int argc, char** argv) try {
  return kuruma::load::Main(argc, argv);
} catch (const std::exception& e) {
  std::fprintf(stderr, "serve_load: %s\n", e.what());
  return 1;
}
