// Assertions for promises inside the program. User input never reaches them: it is answered with a
// Status instead.
#ifndef KURUMA_BASE_CHECK_H_
#define KURUMA_BASE_CHECK_H_

namespace kuruma {

// Prints file, line and the broken promise to stderr and aborts. Any thread.
[[noreturn]] void CheckFailed(const char* file, int line, const char* promise);

}  // namespace kuruma

// Always on, in every build: cheap enough for boundaries, never used inside inner loops.
#define KURUMA_CHECK(promise) \
  ((promise) ? static_cast<void>(0) : ::kuruma::CheckFailed(__FILE__, __LINE__, #promise))

#endif  // KURUMA_BASE_CHECK_H_
