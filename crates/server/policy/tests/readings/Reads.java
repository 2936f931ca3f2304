// Tomcat with a servlet that answers with the path that servlets read, in hexadecimal digits. Two
// settings are not the defaults: encoded slashes are decoded, and backslashes are slashes.

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;

public class Reads extends HttpServlet {
    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
            throws IOException {
        String info = request.getPathInfo();
        String path = request.getServletPath() + (info == null ? "" : info);
        String hex = HexFormat.of().formatHex(path.getBytes(StandardCharsets.UTF_8)) + "\n";
        response.setContentLength(hex.length());
        response.getOutputStream().write(hex.getBytes(StandardCharsets.US_ASCII));
    }

    public static void main(String[] args) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(args[1]);
        Connector connector = new Connector();
        connector.setPort(Integer.parseInt(args[0]));
        connector.setProperty("address", "127.0.0.1");
        connector.setEncodedSolidusHandling("decode");
        connector.setAllowBackslash(true);
        tomcat.setConnector(connector);
        Context context = tomcat.addContext("", args[1]);
        Tomcat.addServlet(context, "reads", new Reads());
        context.addServletMappingDecoded("/*", "reads");
        tomcat.start();
        tomcat.getServer().await();
    }
}
