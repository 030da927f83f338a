/// What a session does for its parent (channel.h): one simulator, asked over and over.
#pragma once
#include "tools/python/channel.h"

namespace orrery::python {

/// Kinds of messages. Of the parent:
inline constexpr char kSetUp = 's';      ///< Cluster, profile, workload, job, options, for replay.
inline constexpr char kProgram = 'p';    ///< Program of the runs that follow; nothing.
inline constexpr char kRun = 'r';        ///< Prices (empty: the pricer's), options.
inline constexpr char kEvaluate = 'e';   ///< Plan; Evaluation.
inline constexpr char kIteration = 'i';  ///< Plan, conditions; seconds.
inline constexpr char kTransfer = 't';   ///< Transfers, degraded links; nanoseconds.
inline constexpr char kTimedRun = 'u';   ///< As kRun; the seconds that it takes here.
inline constexpr char kConfig = 'c';     ///< Nothing; pairs of SimGrid's options.
inline constexpr char kCommand = 'm';    ///< Name, settings, view of a command; the last message.
/// From the session:
inline constexpr char kAnswer = 'a';
inline constexpr char kFailure = 'x';  ///< In words.
/// While a command runs:
inline constexpr char kStarted = 'p';   ///< Its process, for signals.
inline constexpr char kProgress = 'g';  ///< Fields of experiments::Progress.
inline constexpr char kNote = 'n';      ///< In words.
inline constexpr char kProblems = 'q';  ///< Of the settings, in place of an answer.

/// Answers until the parent closes its end.
void run_session(Channel channel);

}  // namespace orrery::python
