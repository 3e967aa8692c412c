// Answers questions about access control with Apache Kafka's StandardAuthorizer.
//
// Reads commands from a file, one a line, with fields that tabs separate, and prints one line for each question:
//   new ALLOW_EVERYONE                                              an authorizer without entries; User:root is a super user
//   add UUID TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION  adds an entry; numbers are those of the protocol
//   remove UUID                                                     removes an entry
//   ask PRINCIPAL HOST OPERATION TYPE NAME                          true if the operation is allowed
//   some PRINCIPAL HOST OPERATION TYPE                              true if it is allowed on some resource of the type
//   count TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION     how many entries match a filter; - matches all
//
// Usage: java -cp 'libs/*' Authorize.java COMMANDS

import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Authorize {
    private static StandardAuthorizer authorizer;

    private record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() {
            return "PLAINTEXT";
        }

        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        public int requestType() {
            return 0;
        }

        public int requestVersion() {
            return 0;
        }

        public String clientId() {
            return "";
        }

        public int correlationId() {
            return 0;
        }
    }

    public static void main(String[] arguments) throws Exception {
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            Object answer = execute(line.split("\t", -1));
            if (answer != null)
                answers.append(answer).append('\n');
        }
        System.out.print(answers);
    }

    private static Object execute(String[] words) throws Exception {
        switch (words[0]) {
            case "new":
                authorizer = new StandardAuthorizer();
                authorizer.configure(Map.of("super.users", "User:root", "allow.everyone.if.no.acl.found", words[1], "node.id", "1"));
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                authorizer.completeInitialLoad();
                return null;
            case "add":
                ResourcePattern pattern = new ResourcePattern(type(words[2]), words[3], PatternType.fromCode(code(words[4])));
                AccessControlEntry entry = new AccessControlEntry(words[5], words[6], operation(words[7]), permission(words[8]));
                authorizer.addAcl(Uuid.fromString(words[1]), StandardAcl.fromAclBinding(new AclBinding(pattern, entry)));
                return null;
            case "remove":
                authorizer.removeAcl(Uuid.fromString(words[1]));
                return null;
            case "ask":
                ResourcePattern resource = new ResourcePattern(type(words[4]), words[5], PatternType.LITERAL);
                Action action = new Action(operation(words[3]), resource, 1, false, false);
                return authorizer.authorize(client(words), List.of(action)).get(0) == AuthorizationResult.ALLOWED;
            case "some":
                return authorizer.authorizeByResourceType(client(words), operation(words[3]), type(words[4])) == AuthorizationResult.ALLOWED;
            case "count":
                ResourcePatternFilter resources = new ResourcePatternFilter(type(words[1]), any(words[2]), PatternType.fromCode(code(words[3])));
                AccessControlEntryFilter entries =
                    new AccessControlEntryFilter(any(words[4]), any(words[5]), operation(words[6]), permission(words[7]));
                int count = 0;
                for (AclBinding binding : authorizer.acls(new AclBindingFilter(resources, entries)))
                    count++;
                return count;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static Client client(String[] words) throws Exception {
        return new Client(SecurityUtils.parseKafkaPrincipal(words[1]), InetAddress.getByName(words[2]));
    }

    private static byte code(String text) {
        return Byte.parseByte(text);
    }

    private static ResourceType type(String text) {
        return ResourceType.fromCode(code(text));
    }

    private static AclOperation operation(String text) {
        return AclOperation.fromCode(code(text));
    }

    private static AclPermissionType permission(String text) {
        return AclPermissionType.fromCode(code(text));
    }

    private static String any(String text) {
        return text.equals("-") ? null : text;
    }
}
