/// Batched send-receive (BSR): who sends what to whom when full values move between devices. Rows
/// are the finest slices of one tensor, or of all tensors of a plan switch (fused).
/// [Hetu v2, sections 4.3 and 6.2]
///
/// plan_sends() takes a table of rows. SendScan takes rows one by one and lets many of them share
/// one list of owners and receivers: what a switch of thousands of devices needs. Both choose the
/// same senders.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace orrery::models {

/// A slice that moves as one, with those who have it before and those who need it after.
struct SliceRow {
  double size = 0;            ///< Bytes or elements; the unit of the send load.
  std::vector<int> owners;    ///< Distinct, >= 0; the order decides what the heuristics leave open.
  std::vector<int> required;  ///< Distinct, >= 0; served in this order.
};

struct BatchedOptions {
  /// Rank of the link between two devices, lower is faster [heuristic II]. Without it all links
  /// are equal. Asked for once for each owner and receiver of a table, not for each row.
  std::function<int(int source, int destination)> link_rank;
  /// The sender with the least cumulative send load on links of the chosen class [heuristic III];
  /// false: with the lowest id, which with an empty link_rank is the paper's baseline.
  bool balance = true;
  /// Class of a link_rank: links of one class share a sender's load (fast and slow receivers behind
  /// one NIC, say). Without it each rank has loads of its own.
  std::function<int(int link_rank)> load_class = {};
};

/// One row to one device.
struct SliceSend {
  std::uint32_t row = 0;
  int source = 0;
  int destination = 0;
  bool operator==(const SliceSend&) const = default;
};

/// One row that a device which needs it already has.
struct SliceCopy {
  std::uint32_t row = 0;
  int device = 0;
  bool operator==(const SliceCopy&) const = default;
};

struct BatchedPlan {
  std::vector<SliceSend> sends;     ///< In scan order.
  std::vector<SliceCopy> copies;    ///< In scan order; they need no send [heuristic I].
  std::vector<std::uint32_t> lost;  ///< Rows that are required and that nobody owns.
};

/// Scans the rows in order, and each row's required devices in order: own copy, else the owner with
/// the fastest link to the receiver; among these the one that has sent least so far; among these
/// the first. Loads count over all rows of the call: one call for all tensors is the fused plan,
/// one call for each tensor the unfused one.
BatchedPlan plan_sends(const std::vector<SliceRow>& rows, const BatchedOptions& options = {});

/// SendScan's answer for a row that nobody owns.
inline constexpr int kNobody = -1;

/// The scan of plan_sends(), row by row.
class SendScan {
 public:
  explicit SendScan(BatchedOptions options);
  ~SendScan();

  /// Owners and receivers as in SliceRow; returns their number for choose(). Takes time in
  /// proportion to owners x receivers that are no owners.
  std::size_t add(const std::vector<int>& owners, const std::vector<int>& required);
  /// The next row. For each required device of the table, in order: who sends it the row, the
  /// device itself where it owns it, kNobody for all where there is no owner. Valid until the next
  /// call. Time: owners + receivers x log(owners).
  const std::vector<int>& choose(std::size_t table, double size);
  /// Forgets what has been sent; tables stay. Begins an unfused call.
  void reset_loads();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::models
