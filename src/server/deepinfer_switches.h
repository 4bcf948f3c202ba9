// The environment variables of DeepInfer, DeepSeek's engine, so that its deployments move over
// without new scripts: those with a meaning here set the option they correspond to.
// Source: DeepInfer 0.1.0, as published (its variables and their defaults).
#ifndef KURUMA_SERVER_DEEPINFER_SWITCHES_H_
#define KURUMA_SERVER_DEEPINFER_SWITCHES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kuruma::server {

struct DeepinferSwitches {
  struct Choice {
    std::string key;    // of ServerSettings
    std::string value;  // as text
    std::string variable;
  };
  std::vector<Choice> choices;
  std::vector<std::string> warnings;  // variables that have no meaning here, or are unknown
};

// Pure. Variables with other names than DEEPINFER_* are not looked at. InvalidArgument names a
// variable whose value DeepInfer would not know, and what it may be.
Result<DeepinferSwitches> ReadDeepinferSwitches(
    const std::map<std::string, std::string>& environment);

// The variables with a meaning here, one per line with what they do.
std::string DescribeDeepinferSwitches();

}  // namespace kuruma::server

#endif  // KURUMA_SERVER_DEEPINFER_SWITCHES_H_
