#include "engine/device_thread.h"

#include <utility>

namespace kuruma::engine {

namespace {

double Ms(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
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

void DeviceThread::Post(std::vector<SlotStep> steps, bool after_pause) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(steps), after_pause});
  }
  posted_.notify_one();
}

DeviceThread::Done DeviceThread::Wait(double patience_ms,
                                      const std::function<void(double ms)>& slow) {
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) {
    const Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Done done = Run(job);
    if (done.ms > patience_ms) slow(done.ms);
    return done;
  }
  const auto is_done = [&] { return !finished_.empty(); };
  const std::chrono::duration<double, std::milli> patience(patience_ms);
  if (!done_.wait_for(lock, patience, is_done)) {
    lock.unlock();
    slow(Ms(Clock::now() - start));
    lock.lock();
    done_.wait(lock, is_done);
  }
  Done done = std::move(finished_.front());
  finished_.pop_front();
  return done;
}

void DeviceThread::Main() {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Done done = Run(job);
    lock.lock();
    finished_.push_back(std::move(done));
    done_.notify_one();
  }
}

DeviceThread::Done DeviceThread::Run(const Job& job) {
  const Clock::time_point start = Clock::now();
  Done done;
  if (!job.after_pause) done.idle_ms = Ms(start - last_end_);
  done.status = runner_->Run(job.steps, &done.results);
  last_end_ = Clock::now();
  done.ms = Ms(last_end_ - start);
  return done;
}

}  // namespace kuruma::engine
