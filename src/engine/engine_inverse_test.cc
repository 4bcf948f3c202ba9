// The comparison that the engine's promise rests on - digests of a request alone and in company -
// must notice a product whose sums depend on the number of rows.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/planted_ops.h"
#include "tests/support/tiny_model.h"

namespace kuruma::engine {
namespace {

using testing::LoadTiny;
using testing::OrThrow;
using testing::RandomTokens;
using testing::Tiny;

// Digests of the requests, all of them on one engine.
std::vector<std::string> Digests(model::Model& model, const std::vector<Request>& requests) {
  std::mutex mutex;
  std::condition_variable changed;
  size_t finished = 0;
  bool submitted = false;  // all of them; nobody gets ahead before
  std::vector<std::string> digests(requests.size());
  const auto engine = OrThrow(Engine::Create(&model, {.max_sequences = 8, .kv_bytes = 64 << 20}));
  for (size_t i = 0; i < requests.size(); ++i) {
    const Sink sink = [&, i](const Event& event) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return submitted; });
      if (event.kind != Event::Kind::kFinished) return;
      digests[i] = event.digest;
      ++finished;
      changed.notify_all();
    };
    OrThrow(engine->Submit(requests[i], sink));
  }
  std::unique_lock lock(mutex);
  submitted = true;
  changed.notify_all();
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(120), [&] {
    return finished == requests.size();
  })) << "requests hang";
  return digests;
}

// Of how many requests the digest alone differs from that in company.
int Different(const kernels::OpTable& ops) {
  Tiny tiny = LoadTiny("nano", {.numerics = "exact", .ops = &ops});
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) {
    Request request;
    request.prompt = RandomTokens(*tiny.model, 5 + 7 * i, static_cast<uint32_t>(i));
    request.max_tokens = 6;
    request.sampling.temperature = i % 2;
    request.digests = true;
    requests.push_back(std::move(request));
  }
  const std::vector<std::string> together = Digests(*tiny.model, requests);
  int different = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string alone = Digests(*tiny.model, {requests[i]})[0];
    EXPECT_EQ(alone.size(), 64u);
    different += alone != together[i] ? 1 : 0;
  }
  return different;
}

TEST(InverseIdentity, AnOrderDependentReductionIsNoticed) {
  EXPECT_EQ(Different(kernels::ReferenceOps()), 0);
  EXPECT_GE(Different(testing::OrderDependentOps()), 4);
}

}  // namespace
}  // namespace kuruma::engine
