#include "interrupt.h"

#include <atomic>

namespace kuruma {
namespace {

std::atomic<bool> pressed{false};  // lock-free, so a signal handler may set it

}  // namespace

CatchInterrupt::CatchInterrupt() {
  pressed = false;
  struct sigaction action {};
  action.sa_handler = [](int) { pressed = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, &previous_);
}

CatchInterrupt::~CatchInterrupt() { sigaction(SIGINT, &previous_, nullptr); }

bool CatchInterrupt::Pressed() { return pressed; }

}  // namespace kuruma
