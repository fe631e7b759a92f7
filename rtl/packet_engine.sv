// An engine between two AXI4-Streams of Ethernet frames (section VI-A, Fig. 8): packets with the
// mark leave with another payload, all others as they came, in their order.
//
//   in -+-> waiting ----> extractor -> sum -> payload coder -> sum -+-> new payloads --+
//       +-> classifier -----^                                       +-> results -+     |
//       |        +-------------------------------- classes -> planner <----------+     |
//       +-> packets as they came ----------------------------> writer <- plans, above <+-> out
module packet_engine #(
    parameter bit DECOMPRESS = 1'b0,            // which of the two engines
    parameter logic [5:0] MARK = 6'h0A,         // code point (ToS >> 2) of packets to be changed
    parameter logic [5:0] NEW_MARK = 6'h0B,     // of packets that were
    parameter int MAX_PACKET_BYTES = 9216,      // longer ones are not changed
    parameter int BUFFER_WORDS = 512            // of 32 bytes, a power of two: 17/16 of the longest
                                                // packet at least; twice that keeps the line's rate
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [  4:0] layout,        // codec 7's layout byte; compression only
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic [255:0] s_axis_tdata,  // the packet's first byte lowest
    input  logic [ 31:0] s_axis_tkeep,  // all ones but for the last word: ones from the lowest up
    input  logic         s_axis_tlast,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic [255:0] m_axis_tdata,
    output logic [ 31:0] m_axis_tkeep,
    output logic         m_axis_tlast,
    // Packets so far:
    output logic [ 31:0] passed,        // without the mark
    output logic [ 31:0] changed,
    output logic [ 31:0] kept,          // with the mark, and as they came all the same
    output logic [ 31:0] dropped
);
  // --- Into the engine
  logic [5:0] in_bytes;
  always_comb begin
    in_bytes = 6'd0;
    for (int i = 0; i < 32; i = i + 1) in_bytes = in_bytes + {5'd0, s_axis_tkeep[i]};
  end

  localparam int WORD = 256 + 6 + 1;
  logic classifier_ready, waiting_ready, old_room, in_take;
  logic waiting_valid, waiting_take, waiting_last, old_valid, old_take, old_last;
  logic [255:0] waiting_data, old_data;
  logic [  5:0] waiting_bytes, old_bytes;
  assign s_axis_tready = classifier_ready && waiting_ready && old_room;
  assign in_take = s_axis_tvalid && s_axis_tready;
  // Where words wait until their packet's class is known, at its third word.
  stream_fifo #(
      .WIDTH(WORD), .DEPTH(8)
  ) waiting (
      .clk, .rst, .in_valid(in_take), .in_ready(waiting_ready),
      .in_data({s_axis_tlast, in_bytes, s_axis_tdata}), .out_valid(waiting_valid),
      .out_ready(waiting_take), .out_data({waiting_last, waiting_bytes, waiting_data}));
  stream_fifo #(
      .WIDTH(WORD), .DEPTH(BUFFER_WORDS)
  ) packets (
      .clk, .rst, .in_valid(in_take), .in_ready(old_room),
      .in_data({s_axis_tlast, in_bytes, s_axis_tdata}), .out_valid(old_valid),
      .out_ready(old_take), .out_data({old_last, old_bytes, old_data}));

  logic class_valid, class_take, class_is_udp;
  logic [ 1:0] class_action;
  logic [ 7:0] class_header_bytes, class_tos;
  logic [ 6:0] class_l4_at;
  logic [15:0] class_payload_bytes, class_total, class_ip_sum, class_l4_sum;
  packet_classifier #(
      .MARK(MARK), .DROP_OTHERS(DECOMPRESS), .MAX_PACKET_BYTES(MAX_PACKET_BYTES)
  ) classifier (
      .clk, .rst, .word_valid(in_take), .word(s_axis_tdata), .word_bytes(in_bytes),
      .word_last(s_axis_tlast), .ready(classifier_ready), .class_valid, .class_ready(class_take),
      .class_action, .class_header_bytes, .class_payload_bytes, .class_is_udp, .class_l4_at,
      .class_tos, .class_total, .class_ip_sum, .class_l4_sum);

  localparam int CLASSES = 16;
  localparam int PLACE = 1 + 8 + 16;
  localparam int CLASS = 2 + 8 + 16 + 1 + 7 + 8 + 16 + 16 + 16;
  logic place_room, place_valid, place_take, place_change, queue_room, queue_valid, queue_take;
  logic [ 7:0] place_header_bytes;
  logic [15:0] place_payload_bytes;
  assign class_take = place_room && queue_room;
  stream_fifo #(
      .WIDTH(PLACE), .DEPTH(CLASSES)
  ) places (
      .clk, .rst, .in_valid(class_valid && class_take), .in_ready(place_room),
      .in_data({class_action == 2'd1, class_header_bytes, class_payload_bytes}),
      .out_valid(place_valid), .out_ready(place_take),
      .out_data({place_change, place_header_bytes, place_payload_bytes}));
  logic queue_is_udp;
  logic [ 1:0] queue_action;
  logic [ 7:0] queue_header_bytes, queue_tos;
  logic [ 6:0] queue_l4_at;
  logic [15:0] queue_payload_bytes, queue_total, queue_ip_sum, queue_l4_sum;
  stream_fifo #(
      .WIDTH(CLASS), .DEPTH(CLASSES)
  ) classes (
      .clk, .rst, .in_valid(class_valid && class_take), .in_ready(queue_room),
      .in_data({class_action, class_header_bytes, class_payload_bytes, class_is_udp, class_l4_at,
                class_tos, class_total, class_ip_sum, class_l4_sum}),
      .out_valid(queue_valid), .out_ready(queue_take),
      .out_data({queue_action, queue_header_bytes, queue_payload_bytes, queue_is_udp, queue_l4_at,
                 queue_tos, queue_total, queue_ip_sum, queue_l4_sum}));

  // --- The payload
  logic group_valid, group_ready, group_last, group_truncated;
  logic [255:0] group_data;
  logic [  5:0] group_bytes;
  logic [ 15:0] group_total;
  payload_extractor extractor (
      .clk, .rst, .in_valid(waiting_valid), .in_ready(waiting_take), .in_data(waiting_data),
      .in_bytes(waiting_bytes), .in_last(waiting_last), .class_valid(place_valid),
      .class_ready(place_take), .class_change(place_change),
      .class_header_bytes(place_header_bytes), .class_payload_bytes(place_payload_bytes),
      .out_valid(group_valid), .out_ready(group_ready), .out_data(group_data),
      .out_bytes(group_bytes), .out_last(group_last), .out_truncated(group_truncated),
      .out_total(group_total));
  logic from_valid, from_ready, from_last, from_truncated;
  logic [255:0] from_data;
  logic [  5:0] from_bytes;
  logic [ 15:0] from_total, from_sum;
  running_sum #(
      .SIDE(6 + 1 + 16)
  ) old_sum (
      .clk, .rst, .in_valid(group_valid), .in_ready(group_ready), .in_data(group_data),
      .in_last(group_last), .in_side({group_bytes, group_truncated, group_total}),
      .out_valid(from_valid), .out_ready(from_ready), .out_data(from_data), .out_last(from_last),
      .out_side({from_bytes, from_truncated, from_total}), .out_sum(from_sum));

  logic to_valid, to_ready, to_last, to_ok;
  logic [255:0] to_data;
  logic [ 15:0] to_bytes, to_old_sum;
  if (DECOMPRESS) begin : g_coder
    payload_decompressor #(
        // A frame's headers have 42 bytes at least.
        .MAX_PAYLOAD_BYTES(MAX_PACKET_BYTES - 42)
    ) coder (
        .clk, .rst, .in_valid(from_valid), .in_ready(from_ready), .in_data(from_data),
        .in_bytes(from_bytes), .in_last(from_last), .in_truncated(from_truncated),
        .in_total(from_total), .in_sum(from_sum), .out_valid(to_valid), .out_ready(to_ready),
        .out_data(to_data), .out_last(to_last), .out_ok(to_ok), .out_bytes(to_bytes),
        .in_sum_again(to_old_sum));
    logic unused;
    assign unused = &layout;
  end else begin : g_coder
    payload_compressor coder (
        .clk, .rst, .layout, .in_valid(from_valid), .in_ready(from_ready), .in_data(from_data),
        .in_bytes(from_bytes), .in_last(from_last), .in_truncated(from_truncated),
        .in_total(from_total), .in_sum(from_sum), .out_valid(to_valid), .out_ready(to_ready),
        .out_data(to_data), .out_last(to_last), .out_ok(to_ok), .out_bytes(to_bytes),
        .in_sum_again(to_old_sum));
  end

  logic made_valid, made_take, made_last, made_ok;
  logic [255:0] made_data;
  logic [ 15:0] made_bytes, made_old_sum, made_sum;
  running_sum #(
      .SIDE(1 + 16 + 16)
  ) new_sum (
      .clk, .rst, .in_valid(to_valid), .in_ready(to_ready), .in_data(to_data), .in_last(to_last),
      .in_side({to_ok, to_bytes, to_old_sum}), .out_valid(made_valid), .out_ready(made_take),
      .out_data(made_data), .out_last(made_last),
      .out_side({made_ok, made_bytes, made_old_sum}), .out_sum(made_sum));

  // --- Out of the engine
  localparam int RESULT = 1 + 16 + 16 + 16;
  logic new_room, new_valid, new_take, new_last, result_room, result_valid, result_take, result_ok;
  logic [255:0] new_data;
  logic [ 15:0] result_bytes, result_old_sum, result_new_sum;
  assign made_take = new_room && result_room;
  stream_fifo #(
      .WIDTH(256 + 1), .DEPTH(BUFFER_WORDS)
  ) payloads (
      .clk, .rst, .in_valid(made_valid && made_take), .in_ready(new_room),
      .in_data({made_last, made_data}), .out_valid(new_valid), .out_ready(new_take),
      .out_data({new_last, new_data}));
  stream_fifo #(
      .WIDTH(RESULT), .DEPTH(CLASSES)
  ) results (
      .clk, .rst, .in_valid(made_valid && made_last && made_take), .in_ready(result_room),
      .in_data({made_ok, made_bytes, made_old_sum, made_sum}), .out_valid(result_valid),
      .out_ready(result_take),
      .out_data({result_ok, result_bytes, result_old_sum, result_new_sum}));

  logic plan_valid, plan_take, plan_send_old, plan_send_new, plan_has_payload, plan_is_udp;
  logic [ 7:0] plan_header_bytes, plan_tos;
  logic [16:0] plan_frame_bytes;
  logic [ 6:0] plan_l4_at;
  logic [15:0] plan_total, plan_l4_bytes, plan_ip_sum, plan_l4_sum;
  packet_planner #(
      .NEW_MARK(NEW_MARK), .SUM_CHANGE(DECOMPRESS ? ~16'h2C00 : 16'h2C00), .DROP_BAD(DECOMPRESS)
  ) planner (
      .clk, .rst, .class_valid(queue_valid), .class_ready(queue_take),
      .class_action(queue_action), .class_header_bytes(queue_header_bytes),
      .class_payload_bytes(queue_payload_bytes), .class_is_udp(queue_is_udp),
      .class_l4_at(queue_l4_at), .class_tos(queue_tos), .class_total(queue_total),
      .class_ip_sum(queue_ip_sum), .class_l4_sum(queue_l4_sum), .result_valid,
      .result_ready(result_take), .result_ok, .result_bytes, .result_old_sum, .result_new_sum,
      .plan_valid, .plan_ready(plan_take), .plan_send_old, .plan_send_new, .plan_has_payload,
      .plan_header_bytes, .plan_frame_bytes, .plan_is_udp, .plan_l4_at, .plan_tos, .plan_total,
      .plan_l4_bytes, .plan_ip_sum, .plan_l4_sum);

  logic [5:0] out_bytes;
  packet_writer writer (
      .clk, .rst, .plan_valid, .plan_ready(plan_take), .plan_send_old, .plan_send_new,
      .plan_has_payload, .plan_header_bytes, .plan_frame_bytes, .plan_is_udp, .plan_l4_at,
      .plan_tos, .plan_total, .plan_l4_bytes, .plan_ip_sum, .plan_l4_sum, .old_valid,
      .old_ready(old_take), .old_data, .old_bytes, .old_last, .new_valid, .new_ready(new_take),
      .new_data, .new_last, .out_valid(m_axis_tvalid), .out_ready(m_axis_tready),
      .out_data(m_axis_tdata), .out_bytes, .out_last(m_axis_tlast));
  always_comb begin
    for (int i = 0; i < 32; i = i + 1) m_axis_tkeep[i] = 6'(i) < out_bytes;
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      passed <= 32'd0;
      changed <= 32'd0;
      kept <= 32'd0;
      dropped <= 32'd0;
    end else if (plan_take) begin
      if (plan_send_new) changed <= changed + 32'd1;
      else if (!plan_send_old) dropped <= dropped + 32'd1;
      else if (plan_has_payload) kept <= kept + 32'd1;
      else passed <= passed + 32'd1;
    end
  end

`ifndef SYNTHESIS
  logic was_stalled, was_last;
  logic [255:0] was_data;
  logic [ 31:0] was_keep;
  always_ff @(posedge clk) begin
    was_stalled <= !rst && m_axis_tvalid && !m_axis_tready;
    was_data <= m_axis_tdata;
    was_keep <= m_axis_tkeep;
    was_last <= m_axis_tlast;
    if (!rst) begin
      a_stable : assert (!was_stalled || m_axis_tvalid && m_axis_tdata == was_data &&
                         m_axis_tkeep == was_keep && m_axis_tlast == was_last)
        else $error("a word that nobody took has changed");
      a_keep : assert (!m_axis_tvalid || m_axis_tkeep[0] && (m_axis_tlast || &m_axis_tkeep))
        else $error("a hole in a packet that leaves");
      a_in : assert (!s_axis_tvalid || s_axis_tkeep[0] && (s_axis_tlast || &s_axis_tkeep) &&
                     (s_axis_tkeep & (s_axis_tkeep + 32'd1)) == 32'd0)
        else $error("a hole in a packet that arrives");
    end
  end
`endif
endmodule
