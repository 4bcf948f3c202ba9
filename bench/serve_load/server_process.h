// What the server costs, as Linux counts it.
#ifndef BENCH_SERVE_LOAD_SERVER_PROCESS_H_
#define BENCH_SERVE_LOAD_SERVER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>

namespace kuruma::load {

// User and system time of all threads so far; 0 if there is no such process. Source: proc(5).
double CpuSeconds(pid_t pid);

// The same of this process.
double OwnCpuSeconds();

// Open files; -1 if they cannot be counted.
int64_t OpenFiles(pid_t pid);

}  // namespace kuruma::load

#endif  // BENCH_SERVE_LOAD_SERVER_PROCESS_H_
