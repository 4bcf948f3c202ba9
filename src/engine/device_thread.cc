#include "engine/device_thread.h"

#include <utility>

namespace kuruma::engine {

DeviceThread::DeviceThread(model::Model* model, int64_t slots, bool bounded_replay,
                           bool synchronous)
    : executor_(model, slots, bounded_replay) {
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

DeviceThread::Done DeviceThread::Wait() {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) {
    const Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    return Run(job);
  }
  done_.wait(lock, [&] { return !finished_.empty(); });
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
  const auto ms = [](Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  const Clock::time_point start = Clock::now();
  Done done;
  if (!job.after_pause) done.idle_ms = ms(start - last_end_);
  done.status = executor_.Run(job.steps, &done.results);
  last_end_ = Clock::now();
  done.ms = ms(last_end_ - start);
  return done;
}

}  // namespace kuruma::engine
