// Fig. 10's burst buffer: holds up to 64 bytes of a compressed payload and gives one burst a cycle.
// It checks what it reads: a payload that is not what payload_compressor makes ends at once in a
// burst that is the last and not `ok`, and the rest of it is thrown away.
module burst_buffer #(
    parameter int MAX_PAYLOAD_BYTES = 9174  // no payload was longer before
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         in_valid,
    output logic         in_ready,
    input  logic [255:0] in_data,       // bytes at and above in_bytes are 0
    input  logic [  5:0] in_bytes,      // 1 to 32; 32 but for the last
    input  logic         in_last,
    input  logic         in_truncated,  // with in_last: the payload is not all there
    input  logic [ 15:0] in_total,      // bytes of the compressed payload
    input  logic [ 15:0] in_sum,        // of the compressed payload, with in_last
    output logic         out_valid,
    input  logic         out_ready,
    output logic [ 15:0] out_tags,
    output logic [255:0] out_data,      // what lies behind the tags; beyond the burst anything
    output logic [ 47:0] out_offsets,   // 6 bits a lane: its first byte in out_data
    output logic [  3:0] out_floats,
    output logic [  1:0] out_rest_bytes,
    output logic [  4:0] out_layout,
    output logic         out_last,
    // With out_last:
    output logic         out_ok,
    output logic [ 15:0] out_total,     // bytes of the payload as it was
    output logic [ 15:0] out_sum        // of the compressed payload
);
  localparam logic [1:0] HEAD = 2'd0;   // the next bytes are a payload's head
  localparam logic [1:0] BURST = 2'd1;  // a burst
  localparam logic [1:0] SKIP = 2'd2;   // a bad payload's, up to its end
  localparam logic [6:0] HEAD_BYTES = 7'd3;

  logic [  1:0] state;
  logic [511:0] buffer;     // bytes at and above `filled` are 0
  logic [  6:0] filled;     // 0 to 64
  logic         complete;   // the payload's last byte is in the buffer
  logic         truncated;  // and it should not have been the last
  logic [ 15:0] total, sum;  // as in_total and in_sum
  logic [ 15:0] whole;      // bytes of the payload as it was
  logic [ 15:0] left;       // bytes of it that are still to come
  logic [  4:0] layout;

  logic [ 3:0] floats;
  logic [ 1:0] rest_bytes;
  logic [47:0] offsets;
  logic [ 5:0] burst_bytes;
  logic stray;
  always_comb begin
    floats = left >= 16'd32 ? 4'd8 : {1'b0, left[4:2]};
    rest_bytes = left >= 16'd32 ? 2'd0 : left[1:0];
  end
  tag_decoder decoder (
      .tags(buffer[15:0]), .floats, .rest_bytes, .offsets, .bytes(burst_bytes), .stray);

  logic slot, step, lacking, ends, is_bad, finish, load;
  logic [6:0] need, taken, rest_filled;
  always_comb begin
    slot = !out_valid || out_ready;
    need = state == HEAD ? HEAD_BYTES : {1'b0, burst_bytes};
    lacking = filled < need;
    step = slot && state != SKIP && (!lacking || complete);
    ends = 1'b0;
    is_bad = lacking;
    if (state == HEAD) begin
      // Bits 5 to 7 of codec 7's layout are reserved. What was compressed has become shorter.
      if (buffer[23:21] != 3'd0 || buffer[19:16] == 4'd0) is_bad = 1'b1;
      if (buffer[15:0] <= total || buffer[15:0] > 16'(MAX_PAYLOAD_BYTES)) is_bad = 1'b1;
    end else begin
      ends = left <= 16'd32;
      if (stray) is_bad = 1'b1;
      // Behind the last burst there must be nothing.
      if (ends && (!complete || truncated || filled != need)) is_bad = 1'b1;
    end
    finish = step && (ends || is_bad);
    taken = step ? need : 7'd0;
    rest_filled = finish ? 7'd0 : filled - taken;
    if (state == SKIP) in_ready = 1'b1;
    else if (finish) in_ready = complete;  // a bad payload that goes on is skipped first
    else in_ready = !complete && rest_filled <= 7'd32;
    load = in_valid && in_ready && state != SKIP;
  end

  logic [511:0] shifted;
  always_comb shifted = finish ? 512'd0 : buffer >> {taken, 3'd0};

  always_ff @(posedge clk) begin
    buffer <= load ? shifted | ({256'd0, in_data} << {rest_filled, 3'd0}) : shifted;
    if (load) begin
      total <= in_total;
      sum <= in_sum;
      truncated <= in_truncated;
    end
    if (step && state == HEAD) begin
      whole <= buffer[15:0];
      left <= buffer[15:0];
      layout <= buffer[20:16];
    end else if (step) begin
      left <= left - 16'd32;  // behind the last burst no one asks
    end
    if (slot) begin
      out_tags <= floats == 4'd0 ? 16'd0 : buffer[15:0];
      out_data <= floats == 4'd0 ? buffer[255:0] : buffer[271:16];
      out_offsets <= offsets;
      out_floats <= floats;
      out_rest_bytes <= rest_bytes;
      out_layout <= layout;
      out_last <= finish;
      out_ok <= !is_bad;
      out_total <= whole;
      out_sum <= sum;
    end
    if (rst) begin
      state <= HEAD;
      buffer <= 512'd0;
      filled <= 7'd0;
      complete <= 1'b0;
      out_valid <= 1'b0;
    end else begin
      filled <= rest_filled + (load ? {1'b0, in_bytes} : 7'd0);
      complete <= load ? in_last : complete && !finish;
      if (slot) out_valid <= step && (state == BURST || finish);
      case (state)
        HEAD, BURST: begin
          if (finish) state <= is_bad && !complete ? SKIP : HEAD;
          else if (step) state <= BURST;
        end
        default: if (in_valid && in_last) state <= HEAD;
      endcase
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      a_filled : assert (filled <= 7'd64) else $error("the burst buffer overflows");
      a_clean : assert ((buffer >> {filled, 3'd0}) == '0) else $error("the buffer is not clean");
      a_state : assert (state != 2'd3) else $error("no such state");
    end
  end
`endif
endmodule
