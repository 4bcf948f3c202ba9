// kuruma bench engine: the serving engine under load, offline and in this process.
#ifndef KURUMA_APPS_BENCH_ENGINE_H_
#define KURUMA_APPS_BENCH_ENGINE_H_

#include <CLI/CLI.hpp>

namespace kuruma {

// Adds the subcommand to `kuruma bench`. What it ends with goes to `exit_code`.
void RegisterBenchEngine(CLI::App* bench, int* exit_code);

}  // namespace kuruma

#endif  // KURUMA_APPS_BENCH_ENGINE_H_
