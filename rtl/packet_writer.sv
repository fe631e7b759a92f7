// Sends what packet_planner decided: the packet as it came, or its headers with what changed in
// them and then the new payload, or nothing. What does not leave is thrown away meanwhile, a word a
// cycle, so that a packet that got shorter takes no longer than it took to arrive.
module packet_writer (
    input  logic         clk,
    input  logic         rst,
    input  logic         plan_valid,
    output logic         plan_ready,  // at a packet's end
    input  logic         plan_send_old,
    input  logic         plan_send_new,
    input  logic         plan_has_payload,
    input  logic [  7:0] plan_header_bytes,
    input  logic [ 16:0] plan_frame_bytes,
    input  logic         plan_is_udp,
    input  logic [  6:0] plan_l4_at,
    input  logic [  7:0] plan_tos,
    input  logic [ 15:0] plan_total,
    input  logic [ 15:0] plan_l4_bytes,
    input  logic [ 15:0] plan_ip_sum,
    input  logic [ 15:0] plan_l4_sum,
    input  logic         old_valid,   // the packet's words
    output logic         old_ready,
    input  logic [255:0] old_data,
    input  logic [  5:0] old_bytes,
    input  logic         old_last,
    input  logic         new_valid,   // the new payload's words
    output logic         new_ready,
    input  logic [255:0] new_data,    // bytes behind its end are 0
    input  logic         new_last,
    output logic         out_valid,
    input  logic         out_ready,
    output logic [255:0] out_data,
    output logic [  5:0] out_bytes,
    output logic         out_last
);
  localparam logic [16:0] SHORTEST_FRAME = 17'd60;  // Ethernet's, without the checksum of its own

  logic [ 11:0] word;      // of the packet that leaves
  logic old_done, new_done, out_done;
  logic [255:0] carry;     // the new payload's last word

  // The headers, with what changed.
  logic [255:0] patched;
  logic [ 11:0] sum_at, length_at;  // bytes of the frame
  always_comb begin
    sum_at = {5'd0, plan_l4_at} + (plan_is_udp ? 12'd6 : 12'd16);
    length_at = {5'd0, plan_l4_at} + 12'd4;
    patched = old_data;
    if (word == 12'd0) begin
      patched[8*15+:8] = plan_tos;
      patched[8*16+:16] = {plan_total[7:0], plan_total[15:8]};
      patched[8*24+:16] = {plan_ip_sum[7:0], plan_ip_sum[15:8]};
    end
    for (int i = 0; i < 16; i = i + 1) begin
      if ({word[6:0], 5'(2 * i)} == sum_at) begin
        patched[16*i+:16] = {plan_l4_sum[7:0], plan_l4_sum[15:8]};
      end
      if (plan_is_udp && {word[6:0], 5'(2 * i)} == length_at) begin
        patched[16*i+:16] = {plan_l4_bytes[7:0], plan_l4_bytes[15:8]};
      end
    end
  end

  // The new packet's words.
  logic [ 11:0] header_words, last_word;  // whole ones of headers; the packet's last
  logic [ 16:0] padded_bytes;
  logic [255:0] moved, header_mask, composed;
  logic in_headers, wants_new;
  always_comb begin
    header_words = {9'd0, plan_header_bytes[7:5]};
    padded_bytes = plan_frame_bytes < SHORTEST_FRAME ? SHORTEST_FRAME : plan_frame_bytes;
    last_word = 12'((padded_bytes - 17'd1) >> 5);
    in_headers = word <= header_words;
    wants_new = word >= header_words && !new_done;
    moved = 256'(({wants_new ? new_data : 256'd0, word > header_words ? carry : 256'd0} <<
        {plan_header_bytes[4:0], 3'd0}) >> 256);
    for (int i = 0; i < 32; i = i + 1) begin
      header_mask[8*i+:8] = 5'(i) < plan_header_bytes[4:0] ? 8'hFF : 8'h00;
    end
    if (word < header_words) composed = patched;
    else if (in_headers) composed = patched & header_mask | moved;
    else composed = moved;
  end

  logic slot, send, old_take, new_take, finish;
  always_comb begin
    slot = !out_valid || out_ready;
    send = 1'b0;
    old_ready = 1'b0;
    new_ready = 1'b0;
    if (plan_valid && plan_send_old) begin
      send = slot && !out_done && old_valid;
      old_ready = slot && !out_done;
      new_ready = plan_has_payload && !new_done;
    end else if (plan_valid && plan_send_new) begin
      send = slot && !out_done && (!in_headers || old_valid) && (!wants_new || new_valid);
      old_ready = in_headers ? send : !old_done;
      new_ready = wants_new && send;
    end else if (plan_valid) begin
      old_ready = !old_done;
      new_ready = plan_has_payload && !new_done;
    end
    old_take = old_valid && old_ready;
    new_take = new_valid && new_ready;
  end

  logic sends_last, old_done_next, new_done_next, out_done_next;
  always_comb begin
    sends_last = plan_send_old ? old_last : word == last_word;
    old_done_next = old_done || old_take && old_last;
    new_done_next = new_done || new_take && new_last;
    out_done_next = out_done || send && sends_last;
    finish = plan_valid && old_done_next && (new_done_next || !plan_has_payload) &&
        (out_done_next || !plan_send_old && !plan_send_new);
    plan_ready = finish;
  end

  always_ff @(posedge clk) begin
    if (slot) begin
      out_data <= plan_send_old ? old_data : composed;
      out_last <= sends_last;
      if (plan_send_old) out_bytes <= old_bytes;
      else out_bytes <= sends_last ? {1'b0, padded_bytes[4:0] - 5'd1} + 6'd1 : 6'd32;
    end
    if (new_take) carry <= new_data;
    if (rst || finish) begin
      word <= 12'd0;
      old_done <= 1'b0;
      new_done <= 1'b0;
      out_done <= 1'b0;
    end else begin
      if (send) word <= word + 12'd1;
      old_done <= old_done_next;
      new_done <= new_done_next;
      out_done <= out_done_next;
    end
    if (rst) out_valid <= 1'b0;
    else if (slot) out_valid <= send;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst && plan_valid) begin
      a_one : assert (!(plan_send_old && plan_send_new)) else $error("two packets for one");
      a_headers : assert (!(plan_send_new && send && word < header_words && old_last))
        else $error("a new packet whose headers end early");
      a_payload : assert (!plan_send_new || !send || !sends_last || new_done_next)
        else $error("a new packet that leaves payload behind");
    end
  end
`endif
endmodule
