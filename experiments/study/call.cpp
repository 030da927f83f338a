#include "experiments/study/call.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>
#include <vector>

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

void take_signal(int number) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

}  // namespace

struct Cancellation::Listener::Actions {
  std::vector<std::pair<int, struct sigaction>> all;  ///< By signal.
};

Cancellation::Cancellation() {
  void* memory =
      mmap(nullptr, sizeof(Flag), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  flag_ = std::shared_ptr<Flag>(new (memory) Flag(false),
                                [](Flag* flag) { munmap(flag, sizeof(Flag)); });
}

void Cancellation::request_on_interrupt() const {
  requested_by_signal = flag_.get();
  signals = 0;
  take_signal(SIGINT);
}

Cancellation::Listener::Listener(const Cancellation& cancellation, bool active)
    : Listener(cancellation,
               active ? std::initializer_list<int>{SIGINT} : std::initializer_list<int>{}) {}

Cancellation::Listener::Listener(const Cancellation& cancellation, std::initializer_list<int> taken)
    : before_(std::make_unique<Actions>()) {
  if (taken.size() == 0) return;
  requested_by_signal = cancellation.flag_.get();
  signals = 0;
  for (const int number : taken) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (number == SIGHUP && before.sa_handler == SIG_IGN) continue;
    before_->all.emplace_back(number, before);
    take_signal(number);
  }
}

Cancellation::Listener::~Listener() {
  for (const auto& [number, action] : before_->all) sigaction(number, &action, nullptr);
}

}  // namespace orrery::experiments
