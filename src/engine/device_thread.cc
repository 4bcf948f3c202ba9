#include "engine/device_thread.h"

#include <utility>

namespace kuruma::engine {
namespace {

double Ms(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

StepJob* TakeOldest(std::vector<StepJob*>* jobs) {
  StepJob* job = jobs->front();
  jobs->erase(jobs->begin());
  return job;
}

}  // namespace

DeviceThread::DeviceThread(std::unique_ptr<Runner> runner, bool synchronous)
    : runner_(std::move(runner)) {
  if (!synchronous) thread_ = std::thread([this] { Main(); });
}

DeviceThread::~DeviceThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void DeviceThread::Post(StepJob* job) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(job);
  }
  posted_.notify_one();
}

StepJob* DeviceThread::Wait(double patience_ms, const std::function<void(double ms)>& slow) {
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) {
    StepJob* job = TakeOldest(&queue_);
    lock.unlock();
    Run(job);
    if (job->ms > patience_ms) slow(job->ms);
    return job;
  }
  const auto is_done = [&] { return !finished_.empty(); };
  const std::chrono::duration<double, std::milli> patience(patience_ms);
  if (!done_.wait_for(lock, patience, is_done)) {
    lock.unlock();
    slow(Ms(Clock::now() - start));
    lock.lock();
    done_.wait(lock, is_done);
  }
  return TakeOldest(&finished_);
}

void DeviceThread::Main() {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    StepJob* job = TakeOldest(&queue_);
    lock.unlock();
    Run(job);
    lock.lock();
    finished_.push_back(job);
    done_.notify_one();
  }
}

void DeviceThread::Run(StepJob* job) {
  const Clock::time_point start = Clock::now();
  job->idle_ms = job->after_pause ? 0 : Ms(start - last_end_);
  job->status = runner_->Run(job->steps, &job->results);
  last_end_ = Clock::now();
  job->ms = Ms(last_end_ - start);
}

}  // namespace kuruma::engine
