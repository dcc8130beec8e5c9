/* comm/group_agree.c: what members tell one another outside of plans: a status, some bytes. Written on the
 * collectives; a process acts for all its local members at once, which may share the buffers they are given.
 */
#include "comm/group.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "comm/collective.h"

/* ---- one collective, made, run and released, for all local members ---- */

/* Makes, runs and frees one collective for all local members in `memory`; member i's input lies at
 * memory + i * in_stride, its output at memory. Out of memory on one process must not leave the others in a
 * collective that it never enters: all agree before anybody starts. */
static tsr_status run_once(tsr_group *group, const tsr_collective_options *options, char *memory,
                           size_t in_stride, tsr_error *error) {
  tsr_status status = TSR_OK;
  size_t count = (size_t)tsr_group_local_count(group);
  tsr_collective **collectives = tsr_calloc(count, sizeof *collectives);
  if (!collectives || !memory)
    status = tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for %zu collectives", count);
  for (size_t i = 0; i < count && status == TSR_OK; i++)
    status = tsr_collective_create(group, tsr_group_local_member(group, (int)i), options, NULL,
                                   &collectives[i], error);
  TSR_TRY(tsr_group_agree(group, status, error, error));
  for (size_t i = 0; i < count; i++)
    TSR_TRY(tsr_collective_start(
        collectives[i], memory + (size_t)tsr_group_local_member(group, (int)i) * in_stride, memory, error));
  TSR_TRY(tsr_collective_wait_all(group, collectives, count, error));
done:
  for (size_t i = 0; collectives && i < count; i++) tsr_collective_destroy(&collectives[i]);
  free(collectives);
  return status;
}

static tsr_status check_bytes(size_t bytes, tsr_error *error) {
  if (bytes <= INT64_MAX) return TSR_OK;
  return tsr_fail(error, TSR_ERROR_INVALID_ARGUMENT, "%zu bytes are more than the limit of %lld", bytes,
                  (long long)INT64_MAX);
}

/* The caller's memory is its own again whatever happens, on its stack for example, so messages get other
 * memory: after a failure that may have to be kept. */
tsr_status tsr_group_broadcast(tsr_group *group, int root, void *data, size_t bytes, tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_bytes(bytes, error));
  int64_t count = (int64_t)bytes;
  tsr_collective_options options = {
      .kind = TSR_BROADCAST, .element_bytes = 1, .root = root, .counts = &count};
  char *memory = tsr_malloc(bytes);
  if (memory && bytes) memcpy(memory, data, bytes);
  tsr_status status = run_once(group, &options, memory, 0, error);
  if (status == TSR_OK && bytes) memcpy(data, memory, bytes);
  tsr_group_free(group, memory);
  return status;
}

tsr_status tsr_group_gather(tsr_group *group, const void *local_data, size_t bytes, void *out,
                            tsr_error *error) {
  TSR_RETURN_IF_FAILED(check_bytes(bytes, error));
  size_t members = (size_t)tsr_group_member_count(group);
  int64_t *counts = tsr_calloc(members, sizeof *counts);
  char *memory = counts ? tsr_calloc(members, bytes) : NULL;
  for (size_t i = 0; counts && i < members; i++) counts[i] = (int64_t)bytes;
  for (int i = 0; memory && bytes && i < tsr_group_local_count(group); i++)
    memcpy(memory + (size_t)tsr_group_local_member(group, i) * bytes,
           (const char *)local_data + (size_t)i * bytes, bytes);
  tsr_collective_options options = {.kind = TSR_ALL_GATHER, .element_bytes = 1, .counts = counts};
  tsr_status status = run_once(group, &options, memory, bytes, error);
  if (status == TSR_OK && bytes) memcpy(out, memory, members * bytes);
  tsr_group_free(group, memory);
  free(counts);
  return status;
}

/* ---- agreement ---- */

/* Two numbers, of which each process learns the maximum: who failed (member_count - member, so that the
 * lowest wins; 0 = nobody), and sequence_next. Exact, as both are far below 2^53. */
enum { WHO_FAILED, SEQUENCE_NEXT, AGREEMENT_VALUES };

tsr_status tsr_group_prepare_agreement(tsr_group *group, tsr_error *error) {
  int locals = tsr_group_local_count(group), members = tsr_group_member_count(group);
  int64_t count = AGREEMENT_VALUES;
  tsr_collective_options options = {.kind = TSR_ALL_REDUCE,
                                    .dtype = TSR_F64,
                                    .reduction = TSR_MAX,
                                    .counts = &count,
                                    .member_count = members};
  /* Alike for all members of one kind; the largest serves all. */
  size_t scratch_bytes = 64;
  for (int i = 0; i < 2 && i < members; i++)
    if (tsr_collective_scratch_bytes(&options, i) > scratch_bytes)
      scratch_bytes = tsr_collective_scratch_bytes(&options, i);
  group->agreements = tsr_calloc((size_t)locals, sizeof *group->agreements);
  group->agreement_values = tsr_calloc((size_t)locals, AGREEMENT_VALUES * sizeof *group->agreement_values);
  group->agreement_scratch = tsr_calloc((size_t)locals, scratch_bytes);
  group->announcements = tsr_calloc((size_t)members, sizeof *group->announcements);
  group->announced = tsr_calloc(1, sizeof *group->announced);
  if (!group->agreements || !group->agreement_values || !group->agreement_scratch || !group->announcements ||
      !group->announced)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the agreements of %d members", locals);
  for (int i = 0; i < locals; i++)
    TSR_RETURN_IF_FAILED(tsr_collective_create(group, tsr_group_local_member(group, i), &options,
                                               group->agreement_scratch + (size_t)i * scratch_bytes,
                                               &group->agreements[i], error));
  return TSR_OK;
}

void tsr_group_release_agreement(tsr_group *group) {
  for (int i = 0; group->agreements && i < tsr_group_local_count(group); i++)
    tsr_collective_destroy(&group->agreements[i]);
  free(group->agreements);
  tsr_group_free(group, group->agreement_values);
  tsr_group_free(group, group->agreement_scratch);
  free(group->announcements);
  tsr_group_free(group, group->announced);
}

/* Replaces every process's two values by the maxima. */
static tsr_status exchange(tsr_group *group, double *values, tsr_error *error) {
  int locals = tsr_group_local_count(group);
  for (int i = 0; i < locals; i++) {
    double *mine = group->agreement_values + i * AGREEMENT_VALUES;
    memcpy(mine, values, AGREEMENT_VALUES * sizeof *values);
    TSR_RETURN_IF_FAILED(tsr_collective_start(group->agreements[i], mine, mine, error));
  }
  TSR_RETURN_IF_FAILED(tsr_collective_wait_all(group, group->agreements, (size_t)locals, error));
  memcpy(values, group->agreement_values, AGREEMENT_VALUES * sizeof *values);
  return TSR_OK;
}

/* An own failure as all shall see it: with its rank, which the message names first, if there are several.
 * What already crossed ranks stays as it is. */
static tsr_error describe(const tsr_group *group, tsr_status own, const tsr_error *own_error) {
  tsr_error described;
  tsr_fail(&described, own, "%s", tsr_status_text(own));
  if (own_error && own_error->status != TSR_OK) described = *own_error;
  described.status = own;
  described.file = NULL;
  if (described.rank < 0 || described.rank >= tsr_group_member_count(group))
    described.rank = tsr_group_local_member(group, 0);
  char prefix[24];
  int length = snprintf(prefix, sizeof prefix, "rank %d: ", described.rank);
  if (tsr_group_member_count(group) > 1 && strncmp(described.message, prefix, (size_t)length) != 0)
    tsr_error_wrap(&described, "rank %d", described.rank);
  return described;
}

/* The error as it came over the wire: its texts end, its pointer is nobody's. */
static tsr_status accept(const tsr_error *received, tsr_error *error) {
  tsr_status status = received->status < 0 ? received->status : TSR_ERROR_INTERNAL;
  if (!error) return status;
  *error = *received;
  error->status = status;
  error->file = NULL;
  error->message[sizeof error->message - 1] = 0;
  error->domain[sizeof error->domain - 1] = 0;
  error->device[sizeof error->device - 1] = 0;
  error->build_log[sizeof error->build_log - 1] = 0;
  return status;
}

static void restart_sequences(tsr_group *group, uint64_t base) {
  const tsr_transport *transport = group->transport;
  memset(group->sequences, 0,
         (size_t)transport->local_count * (size_t)transport->member_count * sizeof *group->sequences);
  group->sequence_base = group->sequence_next = base;
}

static tsr_status begin_announcement(tsr_group *group, int failed, tsr_error *error) {
  tsr_transport *transport = group->transport;
  const bool sends = tsr_transport_local_index(transport, failed) >= 0;
  for (int member = 0; member < transport->member_count; member++) {
    const bool local = tsr_transport_local_index(transport, member) >= 0;
    tsr_request *request = &group->announcements[member];
    if (sends && !local)
      TSR_RETURN_IF_FAILED(transport->ops->isend(transport, failed, member, TSR_TAG_ANNOUNCEMENT,
                                                 group->announced, sizeof *group->announced, request, error));
    if (!sends && local)
      TSR_RETURN_IF_FAILED(transport->ops->irecv(transport, member, failed, TSR_TAG_ANNOUNCEMENT,
                                                 group->announced, sizeof *group->announced, request, error));
  }
  return TSR_OK;
}

/* Brings the failed member's record to every process. */
static tsr_status announce(tsr_group *group, int failed, tsr_error *error) {
  tsr_status status = TSR_OK;
  tsr_transport *transport = group->transport;
  TSR_TRY(begin_announcement(group, failed, error));
  for (bool all_done = false; !all_done;) {
    all_done = true;
    for (int member = 0; member < transport->member_count; member++) {
      bool done;
      TSR_TRY(transport->ops->test(transport, &group->announcements[member], &done, error));
      all_done = all_done && done;
    }
    if (!all_done) TSR_TRY(tsr_group_wait_turn(group, error));
  }
  return TSR_OK;
done:
  for (int member = 0; member < transport->member_count; member++)
    transport->ops->cancel(transport, &group->announcements[member]);
  return status;
}

tsr_status tsr_group_agree(tsr_group *group, tsr_status own, const tsr_error *own_error, tsr_error *error) {
  if (group->broken && own == TSR_OK) return tsr_group_check(group, error);
  if (own != TSR_OK) *group->announced = describe(group, own, own_error);
  if (group->broken) return accept(group->announced, error);

  int members = tsr_group_member_count(group), me = tsr_group_local_member(group, 0);
  double values[AGREEMENT_VALUES] = {own != TSR_OK ? members - me : 0, (double)group->sequence_next};
  TSR_RETURN_IF_FAILED(exchange(group, values, error));
  if (values[WHO_FAILED] == 0) return TSR_OK;

  restart_sequences(group, (uint64_t)values[SEQUENCE_NEXT]);
  TSR_RETURN_IF_FAILED(announce(group, members - (int)values[WHO_FAILED], error));
  return accept(group->announced, error);
}
