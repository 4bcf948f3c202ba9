// Ctrl-C as a flag, so that a command can end with what there is.
#ifndef KURUMA_APPS_INTERRUPT_H_
#define KURUMA_APPS_INTERRUPT_H_

#include <csignal>

namespace kuruma {

// Catches Ctrl-C for its lifetime; a second Ctrl-C has the usual effect. One at a time.
class CatchInterrupt {
 public:
  CatchInterrupt();
  ~CatchInterrupt();
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

  // Whether Ctrl-C was pressed since the last of them was made. Any thread.
  static bool Pressed();

 private:
  struct sigaction previous_ {};
};

}  // namespace kuruma

#endif  // KURUMA_APPS_INTERRUPT_H_
