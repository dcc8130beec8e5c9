/* comm/transport.c: what all transports share: the list of local members, the count of bytes, the clock. */
#include "comm/transport.h"

#include "base/memory.h"

/* Below 2^31, the most that MPI counts in an int, and a multiple of every page size. */
static const int64_t default_message_bytes_max = (int64_t)1 << 30;

tsr_status tsr_transport_init(tsr_transport *transport, const tsr_transport_ops *ops, tsr_context *context,
                              int member_count, int first, int local_count, tsr_error *error) {
  transport->ops = ops;
  transport->context = context;
  transport->member_count = member_count;
  transport->local_count = local_count;
  transport->message_bytes_max = default_message_bytes_max;
  transport->failed_member = -1;
  transport->local_members = tsr_calloc((size_t)local_count, sizeof *transport->local_members);
  transport->bytes_sent = tsr_calloc((size_t)local_count, sizeof *transport->bytes_sent);
  if (!transport->local_members || !transport->bytes_sent)
    return tsr_fail(error, TSR_ERROR_OUT_OF_MEMORY, "no memory for the %d local members of a group",
                    local_count);
  for (int i = 0; i < local_count; i++) transport->local_members[i] = first + i;
  return TSR_OK;
}

void tsr_transport_finish(tsr_transport *transport) {
  free(transport->local_members);
  free(transport->bytes_sent);
}

int tsr_transport_local_index(const tsr_transport *transport, int member) {
  int index = member - transport->local_members[0];
  return index >= 0 && index < transport->local_count ? index : -1;
}

void tsr_request_append(tsr_request_queue *into, tsr_request *request) {
  request->next = NULL;
  request->previous = into->last;
  if (into->last)
    into->last->next = request;
  else
    into->first = request;
  into->last = request;
}

void tsr_request_prepend(tsr_request_queue *into, tsr_request *request) {
  request->next = into->first;
  request->previous = NULL;
  if (into->first)
    into->first->previous = request;
  else
    into->last = request;
  into->first = request;
}

void tsr_request_unlink(tsr_request_queue *from, tsr_request *request) {
  if (request->previous)
    request->previous->next = request->next;
  else
    from->first = request->next;
  if (request->next)
    request->next->previous = request->previous;
  else
    from->last = request->previous;
}
