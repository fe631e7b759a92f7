// Section VI-A's compression engine: what a host sends with type of service 0x28 leaves compressed,
// with 0x2C, where that makes it smaller. docs/hardware.md says what else.
module compression_engine #(
    parameter int MAX_PACKET_BYTES = 9216,  // longer packets leave as they came
    parameter int BUFFER_WORDS = 512        // as packet_engine says
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         layout_write,  // sets mode and bound, from the next packet's payload on
    input  logic [  7:0] layout_in,     // codec 7's layout byte: bits 0..3 b of the bound 2^-b,
                                        // bit 4 bounded mode; others are not taken
    output logic [  7:0] layout,
    input  logic         s_axis_tvalid,
    output logic         s_axis_tready,
    input  logic [255:0] s_axis_tdata,
    input  logic [ 31:0] s_axis_tkeep,
    input  logic         s_axis_tlast,
    output logic         m_axis_tvalid,
    input  logic         m_axis_tready,
    output logic [255:0] m_axis_tdata,
    output logic [ 31:0] m_axis_tkeep,
    output logic         m_axis_tlast,
    output logic [ 31:0] passed,        // packets, as packet_engine says
    output logic [ 31:0] changed,
    output logic [ 31:0] kept,
    output logic [ 31:0] dropped
);
  always_ff @(posedge clk) begin
    if (rst) layout <= 8'h1A;  // bounded, 2^-10
    else if (layout_write && layout_in[7:5] == 3'd0 && layout_in[3:0] != 4'd0) layout <= layout_in;
  end

  packet_engine #(
      .DECOMPRESS(1'b0), .MARK(6'h0A), .NEW_MARK(6'h0B),
      .MAX_PACKET_BYTES(MAX_PACKET_BYTES), .BUFFER_WORDS(BUFFER_WORDS)
  ) engine (
      .clk, .rst, .layout(layout[4:0]), .s_axis_tvalid, .s_axis_tready, .s_axis_tdata,
      .s_axis_tkeep, .s_axis_tlast, .m_axis_tvalid, .m_axis_tready, .m_axis_tdata, .m_axis_tkeep,
      .m_axis_tlast, .passed, .changed, .kept, .dropped);
endmodule
