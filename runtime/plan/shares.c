/* For a bound u on the largest share, the least time T for which the members can take all grains is found by
 * bisection: within T a member takes at most the largest x with nanoseconds[x] <= T. That is exact for one u; the
 * collective's price depends on u alone, so the best u is found by trying all that can matter: from the largest
 * share of the unbounded optimum down to the even share. */
#include "plan/shares.h"

/* Largest x <= limit with row[x] <= time; -1 if even x = 0 takes longer. */
static int64_t most_within(const int64_t *row, int64_t limit, int64_t time) {
  if (row[0] > time) return -1;
  int64_t low = 0, high = limit;
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    if (row[middle] <= time)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

static int64_t limit_of(const tsr_shares_problem *problem, int r, int64_t largest) {
  int64_t limit = problem->capacity[r] < problem->grains ? problem->capacity[r] : problem->grains;
  return limit < largest ? limit : largest;
}

static bool takes_all(const tsr_shares_problem *problem, int64_t largest, int64_t time) {
  int64_t sum = 0;
  for (int r = 0; r < problem->member_count; r++) {
    int64_t most = most_within(problem->nanoseconds[r], limit_of(problem, r, largest), time);
    if (most < 0) return false;
    sum += most;
  }
  return sum >= problem->grains;
}

/* Least time under a bound on the largest share; -1 if the grains do not fit. */
static int64_t least_time(const tsr_shares_problem *problem, int64_t largest) {
  int64_t low = 0, high = 0;
  for (int r = 0; r < problem->member_count; r++) {
    int64_t most = problem->nanoseconds[r][limit_of(problem, r, largest)];
    if (most > high) high = most;
  }
  if (!takes_all(problem, largest, high)) return -1;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (takes_all(problem, largest, middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Fills to the brim of `time`, then takes the surplus from whoever is slowest. */
static void fill(const tsr_shares_problem *problem, int64_t largest, int64_t time, int64_t *shares) {
  int64_t surplus = -problem->grains;
  for (int r = 0; r < problem->member_count; r++) {
    shares[r] = most_within(problem->nanoseconds[r], limit_of(problem, r, largest), time);
    surplus += shares[r];
  }
  for (; surplus > 0; surplus--) {
    int slowest = -1;
    for (int r = 0; r < problem->member_count; r++) {
      if (!shares[r]) continue;
      int64_t mine = problem->nanoseconds[r][shares[r]];
      int64_t worst = slowest < 0 ? -1 : problem->nanoseconds[slowest][shares[slowest]];
      if (mine > worst || (mine == worst && shares[r] >= shares[slowest])) slowest = r;
    }
    shares[slowest]--;
  }
}

bool tsr_shares_solve(const tsr_shares_problem *problem, int64_t *shares, int64_t *nanoseconds) {
  int64_t best_largest = problem->grains, best_time = least_time(problem, problem->grains);
  if (best_time < 0) return false;
  fill(problem, best_largest, best_time, shares);
  if (problem->collective) {
    int64_t top = 0, best = INT64_MAX;
    for (int r = 0; r < problem->member_count; r++)
      if (shares[r] > top) top = shares[r];
    int64_t even = (problem->grains + problem->member_count - 1) / problem->member_count;
    for (int64_t u = top; u >= even; u--) {
      int64_t time = least_time(problem, u);
      if (time < 0) break;
      int64_t total = time + problem->collective(problem->user, u);
      if (total >= best) continue;
      best = total;
      best_largest = u;
      best_time = time;
    }
    fill(problem, best_largest, best_time, shares);
    best_time = best;
  }
  *nanoseconds = best_time;
  return true;
}
