// Finds stop strings in text that arrives in pieces.
#ifndef KURUMA_APPS_STOP_MATCHER_H_
#define KURUMA_APPS_STOP_MATCHER_H_

#include <string>
#include <string_view>
#include <vector>

namespace kuruma {

// Releases text that can no longer be part of a stop string. Which stop ends the text does not
// depend on where pieces begin and end: the one that is complete first; of those, the longest. One
// thread.
class StopMatcher {
 public:
  // No entry of `stops` is empty.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Text released by `piece`. Once stopped(), nothing follows.
  std::string Push(std::string_view piece);

  // True once a stop string was complete; it and what follows are never released.
  bool stopped() const { return stopped_; }

  // What was held back, when the text ends for another reason.
  std::string Finish();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace kuruma

#endif  // KURUMA_APPS_STOP_MATCHER_H_
