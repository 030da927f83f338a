#include "experiments/study/call.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace orrery::experiments {
namespace {

using Flag = std::atomic<bool>;
static_assert(Flag::is_always_lock_free);

// A signal handler can reach nothing else.
std::atomic<Flag*> requested_by_signal = nullptr;
volatile sig_atomic_t signals = 0;  // of this process

void on_signal(int) {
  if (signals != 0) _exit(kInterrupted);
  signals = 1;
  requested_by_signal.load()->store(true);
}

}  // namespace

struct Cancellation::Listener::Action {
  struct sigaction interrupt {};
  struct sigaction terminate {};
};

Cancellation::Cancellation() {
  void* memory =
      mmap(nullptr, sizeof(Flag), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  flag_ = std::shared_ptr<Flag>(new (memory) Flag(false),
                                [](Flag* flag) { munmap(flag, sizeof(Flag)); });
}

void Cancellation::request_on_interrupt(bool terminate) const {
  requested_by_signal = flag_.get();
  signals = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  if (terminate) sigaction(SIGTERM, &action, nullptr);
}

Cancellation::Listener::Listener(const Cancellation& cancellation, bool active, bool terminate) {
  if (!active) return;
  before_ = std::make_unique<Action>();
  sigaction(SIGINT, nullptr, &before_->interrupt);
  sigaction(SIGTERM, nullptr, &before_->terminate);
  cancellation.request_on_interrupt(terminate);
}

Cancellation::Listener::~Listener() {
  if (!before_) return;
  sigaction(SIGINT, &before_->interrupt, nullptr);
  sigaction(SIGTERM, &before_->terminate, nullptr);
}

}  // namespace orrery::experiments
