// The subcommands of the kuruma program, one file each. Each function adds its subcommand to `app`;
// when it was chosen, parsing runs it and stores the program's exit status in `*exit_code`, which
// must outlive the parsing: 0 success, 1 our own fault or out of memory, 2 wrong input or files,
// 130 interrupted.
#ifndef KURUMA_APPS_COMMANDS_H_
#define KURUMA_APPS_COMMANDS_H_

#include <CLI/CLI.hpp>

namespace kuruma {

void RegisterBench(CLI::App& app, int* exit_code);
void RegisterChat(CLI::App& app, int* exit_code);
void RegisterEval(CLI::App& app, int* exit_code);
void RegisterGenerate(CLI::App& app, int* exit_code);
void RegisterInspect(CLI::App& app, int* exit_code);
void RegisterParse(CLI::App& app, int* exit_code);
void RegisterRender(CLI::App& app, int* exit_code);
void RegisterServe(CLI::App& app, int* exit_code);
void RegisterScore(CLI::App& app, int* exit_code);
void RegisterTokenize(CLI::App& app, int* exit_code);

}  // namespace kuruma

#endif  // KURUMA_APPS_COMMANDS_H_
